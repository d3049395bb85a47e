//! A workload on the F2FS engine as the load.

use basalt_flash::device::DeviceModel;
use basalt_flash::ftl::TranslationKind;
use basalt_workloads::{Limit, Settings, by_name};

use super::{Amplification, Simulated, unevenness};
use crate::compare::scale;
use crate::engine::{self, EngineError, EngineRun, EngineSettings};

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

/// Sizes of the volume that a workload without an end writes before it is measured, and while it is. At half of both, FAST under zipf is
/// still 7 % below what more of them give.
const ROUNDS: (u64, u64) = (4, 2);

/// What each policy and translation layer makes of a workload; `say` hears which policy runs. `settings` say how long the workload ages and
/// is measured, or leave both to this.
///
/// # Errors
/// In words, when the workload is not known, fits on no policy's volume, or fails.
pub fn of_workload(
    workload: &str,
    settings: &Settings,
    device: &DeviceModel,
    say: &mut dyn FnMut(&str),
) -> Result<Simulated, String> {
    // The set that a comparison has: the same name is the same load in both.
    let workload = &scale::workload(workload, settings);
    let plan = by_name(workload, settings).map_err(|error| error.to_string())?.plan();
    let is_steady = matches!(plan.measure, Limit::Bytes(_));
    let mut settings = settings.clone();
    if is_steady {
        let rounds = |rounds: u64| Limit::Bytes(settings.size_bytes.saturating_mul(rounds));
        settings.age = settings.age.or(Some(rounds(ROUNDS.0)));
        settings.measure = settings.measure.or(Some(rounds(ROUNDS.1)));
    }
    let (mut amplifications, mut left_out) = (Vec::new(), Vec::new());
    for policy in &POLICIES {
        say(policy.name);
        match run(policy, workload, &settings, device) {
            Ok(result) => amplifications.extend(of_run(policy, workload, &result)?),
            Err(EngineError::Workload(error)) if error.is_no_space() => {
                left_out.push(format!("{}: {error}", policy.name));
            }
            Err(error) => return Err(format!("{}: {error}", policy.name)),
        }
    }
    match left_out.first() {
        Some(why) if amplifications.is_empty() => Err(why.clone()),
        _ => Ok(Simulated { amplifications, left_out, is_steady, more_room: Vec::new() }),
    }
}

fn run(policy: &Policy, workload: &str, settings: &Settings, device: &DeviceModel) -> Result<EngineRun, EngineError> {
    let mut run = EngineSettings::new(device.clone(), settings.clone());
    run.options.discard = policy.discard;
    run.segments_per_section = policy.segments_per_section;
    run.layers = TranslationKind::ALL.to_vec();
    // Years later, a device that is told what is free knows it, from mkfs on; one that is not told has every page written.
    run.layers_filled_percent = if policy.discard { 0 } else { 100 };
    engine::run(by_name(workload, settings)?.as_mut(), &run)
}

fn of_run(policy: &Policy, workload: &str, result: &EngineRun) -> Result<Vec<Amplification>, String> {
    let bytes = result.workload.measure.written_bytes;
    if bytes == 0 {
        return Err(format!("{workload}: nothing is written in its measured phase"));
    }
    let of_layer = |layer: &engine::LayerRun| Amplification {
        policy: policy.name.into(),
        layer: Some(layer.kind),
        waf: (layer.statistics.pages_written * u64::from(layer.end.geometry.page_bytes())) as f64 / bytes as f64,
        wa: layer.statistics.write_amplification(),
        unevenness: unevenness(&layer.end.wear),
    };
    Ok(result.layers.iter().map(of_layer).collect())
}
