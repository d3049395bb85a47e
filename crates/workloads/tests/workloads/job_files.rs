//! What the tests of job files have in common: a file, its workload, and all its operations.

use std::path::Path;

use basalt_workloads::{Error, Operation, Phase, Settings, Workload, by_name};

/// Puts a text into a file.
pub fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// The workload of a text, with options behind its path.
pub fn workload(name: &str, text: &str, options: &str, settings: &Settings) -> Result<Box<dyn Workload>, Error> {
    let place = tempfile::tempdir().unwrap();
    let path = write(place.path(), name, text);
    by_name(&format!("{path}{options}"), settings)
}

/// What is wrong with a text, without the directory of its file.
pub fn complaint(name: &str, text: &str, settings: &Settings) -> String {
    let line = workload(name, text, "", settings).err().map(|error| error.to_string()).unwrap_or_default();
    match line.find(name) {
        Some(begin) => line[begin..].to_owned(),
        None => line,
    }
}

/// The operations of a phase until its end, or so many steps.
pub fn operations(workload: &mut dyn Workload, phase: Phase, steps: usize) -> Vec<Operation> {
    let (mut all, mut step) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        if !workload.step(phase, &mut step) {
            break;
        }
        all.append(&mut step);
    }
    all
}
