//! A workload on the F2FS engine as the load.

use basalt_flash::device::DeviceModel;
use basalt_flash::ftl::TranslationKind;
use basalt_workloads::{Settings, by_name};

use super::{Amplification, unevenness};
use crate::engine::{self, EngineSettings};

/// How the volume is used.
struct Policy {
    name: &'static str,
    discard: bool,
    segments_per_section: u32,
}

/// What users can choose today.
const POLICIES: [Policy; 3] = [
    Policy { name: "basalt", discard: true, segments_per_section: 1 },
    Policy { name: "basalt, nodiscard", discard: false, segments_per_section: 1 },
    Policy { name: "basalt, sections of 8 MiB", discard: true, segments_per_section: 4 },
];

/// What each policy and translation layer makes of a workload; `say` hears which policy runs.
///
/// # Errors
/// In words, when the workload is not known, does not fit, or fails.
pub fn of_workload(
    workload: &str,
    settings: &Settings,
    device: &DeviceModel,
    say: &mut dyn FnMut(&str),
) -> Result<Vec<Amplification>, String> {
    let mut all = Vec::new();
    for policy in &POLICIES {
        say(policy.name);
        let mut run = EngineSettings::new(device.clone(), settings.clone());
        run.options.discard = policy.discard;
        run.segments_per_section = policy.segments_per_section;
        run.layers = TranslationKind::ALL.to_vec();
        let mut load = by_name(workload, settings).map_err(|error| error.to_string())?;
        let result = engine::run(load.as_mut(), &run).map_err(|error| format!("{}: {error}", policy.name))?;
        let bytes = result.workload.measure.written_bytes;
        if bytes == 0 {
            return Err(format!("{workload}: nothing is written in its measured phase"));
        }
        all.extend(result.layers.iter().map(|layer| Amplification {
            policy: policy.name.into(),
            layer: Some(layer.kind),
            waf: (layer.statistics.pages_written * u64::from(layer.end.geometry.page_bytes())) as f64 / bytes as f64,
            wa: layer.statistics.write_amplification(),
            unevenness: unevenness(&layer.end.wear),
        }));
    }
    Ok(all)
}
