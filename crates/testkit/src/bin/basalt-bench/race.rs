//! All contenders through all workloads, in turn.

use basalt_testkit::Result;

use crate::contender::{Contender, drop_caches};
use crate::options::Scale;
use crate::report::{Sample, Section};
use crate::sources::Sources;
use crate::workload::Workload;

/// Runs everything `runs` times and adds it to the section. What fails is noted there and left out of the tables.
pub fn run(
    section: &mut Section,
    contenders: &mut [Contender],
    workloads: &[Workload],
    scale: &Scale,
    sources: &Sources,
    runs: u32,
) {
    section.contenders = contenders.iter().map(|contender| contender.name().to_owned()).collect();
    for run in 1..=runs {
        for &workload in workloads {
            for contender in contenders.iter_mut().filter(|contender| workload.suits(contender.kind())) {
                eprintln!("run {run} of {runs}: {}, {}: {}", section.title, workload.name(), contender.name());
                match once(contender, workload, scale, sources) {
                    Ok(samples) => samples.into_iter().for_each(|sample| section.add(contender.name(), sample)),
                    Err(error) => {
                        section.fail(format!("{}, {}, run {run}: {error}", contender.name(), workload.name()))
                    }
                }
            }
        }
    }
}

/// One workload on a new volume. The disk has nothing else to write when it starts, and the caches are empty.
fn once(contender: &mut Contender, workload: Workload, scale: &Scale, sources: &Sources) -> Result<Vec<Sample>> {
    contender.set_image_size(workload.volume_bytes(scale));
    let samples = contender.format().and_then(|()| {
        drop_caches()?;
        contender.mount()?;
        workload.run(contender, scale, sources)
    });
    let left = contender.leave();
    let samples = samples?;
    left.map(|()| samples)
}
