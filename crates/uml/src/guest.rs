//! The shell scripts that run inside the machine.

use std::path::Path;

/// The first process: sets the machine up, runs `script`, leaves `output`, `status` and `kernel.log`, powers off.
///
/// Only the three result files are written out at the end, never everything: a script that ends with a volume still
/// mounted gets a power cut, and a `sync` here would undo that.
pub fn init_script(place: &Path, modules: &[String], environment: &[(String, String)]) -> String {
    let place = quoted(&place.display().to_string());
    let modules: String = modules.iter().map(|module| format!(" {}", quoted(module))).collect();
    let environment: String =
        environment.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
    format!(
        r#"#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
place={place}
export RUN="$place/run"
{environment}cd /
: > "$place/output"
for module in{modules}; do
    insmod "{MODULES}/$(uname -r)/kernel/$module.ko" >> "$place/output" 2>&1 ||
        echo "cannot load the module $module" >> "$place/output"
done
# Whatever a script that hangs has said must reach the host before the machine is killed.
while sleep 1; do sync "$place/output"; done &
setsid --wait sh "$place/script" < /dev/null >> "$place/output" 2>&1
status=$?
dmesg --raw > "$place/kernel.log"
echo "$status" > "$place/status"
sync "$place/output" "$place/kernel.log" "$place/status"
echo o > /proc/sysrq-trigger
while :; do sleep 60; done
"#,
        MODULES = crate::machine::MODULES
    )
}

/// One word of the shell, whatever it contains.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn quoting_survives_the_shell() {
        let nasty = "a'b\"c$d`e\\f\n*";
        let output =
            std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quoted(nasty))]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), nasty);
    }
}
