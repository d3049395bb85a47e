//! Points of the kind `requests`: requests of one size on a simulated device, and nothing above it.

use basalt_device::RequestKind;
use basalt_flash::device::presets;
use basalt_random::Rng;

use super::{ANY_NUMBER, parameter};
use crate::experiment::parameter::{Form, Measured, Metric, Parameter};
use crate::experiment::point::Point;

/// What can be asked for.
pub const PARAMETERS: &[Parameter] = &[
    parameter("device", "ssd-m", Form::Device, "preset of `basalt lab devices`, or the path of a device's TOML file"),
    parameter("operation", "write", Form::Choice(&["write", "read"]), "what is requested"),
    parameter(
        "order",
        "random",
        Form::Choice(&["random", "sequential"]),
        "where requests begin: at any multiple of their size, or where the last one ended",
    ),
    parameter("request", "4K", Form::Size { least: 512 }, "bytes of a request"),
    parameter("size", "1G", Form::Size { least: 1 << 20 }, "bytes of the device that requests reach"),
    parameter("measure", "64M", Form::Size { least: 512 }, "bytes to request, in whole requests"),
    parameter("seed", "1", ANY_NUMBER, "seed of the random order"),
];

/// What is measured.
pub const METRICS: &[Metric] = &[
    Metric::plain("mb_per_second", "bandwidth (MB/s)"),
    Metric::plain("requests", "requests"),
    Metric::time("request_mean_ns", "a request, mean"),
    Metric::time("device_ns", "device time by the model"),
];

/// What a table shows if nobody chooses.
pub const MAIN_METRICS: &[&str] = &["mb_per_second", "request_mean_ns"];

/// The most requests of a point.
const MOST: u64 = 1 << 32;

/// Runs a point.
pub(super) fn run(point: &Point) -> Result<Measured, String> {
    let mut meter = presets::find(point.value("device")).map_err(|error| error.to_string())?.meter();
    let number = |name: &str, usual| point.number(name).unwrap_or(usual);
    let length = number("request", 4096);
    let places = number("size", 1 << 30) / length;
    if places < 2 {
        return Err("request: size has no room for two".to_owned());
    }
    let requests = (number("measure", 64 << 20) / length).max(1);
    if requests > MOST {
        return Err(format!("measure: more than {MOST} requests"));
    }
    let kind = if point.value("operation") == "read" { RequestKind::Read } else { RequestKind::Write };
    let is_random = point.value("order") == "random";
    let mut rng = Rng::new(number("seed", 1));
    // The first request begins a stream in either order, and is not measured.
    meter.request(kind, 0, length);
    let mut device_ns = 0;
    for index in 1..=requests {
        let place = if is_random { rng.below(places) } else { index % places };
        device_ns += meter.request(kind, place * length, length);
    }
    let mut measured = Measured::default();
    measured.add("mb_per_second", (requests * length) as f64 * 1e3 / device_ns as f64);
    measured.count("requests", requests);
    measured.add("request_mean_ns", device_ns as f64 / requests as f64);
    measured.count("device_ns", device_ns);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::*;

    fn run(arguments: &[&str]) -> Result<Measured, String> {
        Point::parse(Kind::Requests, arguments).unwrap().run()
    }

    fn value(arguments: &[&str], metric: &str) -> f64 {
        let measured = run(arguments).unwrap();
        measured.values().iter().find(|(name, _)| *name == metric).unwrap().1
    }

    /// The card's table: random writes of 4 KiB 1.2 MB/s, sequential ones 1.7, of 512 KiB 12.1 both; reads of 4 KiB 6.
    #[test]
    fn bandwidths_are_those_of_the_devices_table() {
        for (arguments, expected) in [
            (&["order=random", "request=4K"][..], 1.2),
            (&["order=sequential", "request=4K"], 1.7),
            (&["order=random", "request=512K"], 12.1),
            (&["order=random", "request=4K", "operation=read"], 6.0),
        ] {
            let arguments = [&["device=sd-l", "size=16G"], arguments].concat();
            // Some random requests happen to go on where one of the last five ended.
            let bandwidth = value(&arguments, "mb_per_second");
            assert!((bandwidth / expected - 1.0).abs() < 0.001, "{arguments:?}: {bandwidth}");
        }
    }

    #[test]
    fn as_much_is_requested_as_is_asked_for() {
        let arguments = ["device=sd-l", "request=16K", "measure=1M"];
        assert_eq!(value(&arguments, "requests"), 64.0);
        assert_eq!(value(&arguments, "device_ns"), 64.0 * value(&arguments, "request_mean_ns"));
        // A whole request at least.
        assert_eq!(value(&["request=1M", "measure=512"], "requests"), 1.0);
        assert_eq!(run(&["request=1M", "size=1M"]).unwrap_err(), "request: size has no room for two");
        assert!(run(&["request=512", "measure=4096T"]).unwrap_err().starts_with("measure: "));
    }
}
