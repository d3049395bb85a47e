//! The seed corpus of the fuzz targets, and what they ever found, through the same code.

use std::path::Path;

use crate::fuzz::TARGETS;

#[test]
fn the_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in TARGETS {
        let directory = corpus.join(name);
        let files = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            if let Err(panic) = std::panic::catch_unwind(|| target(&input)) {
                eprintln!("input {}", path.display());
                std::panic::resume_unwind(panic);
            }
            count += 1;
        }
        assert!(count > 0, "no input in {}", directory.display());
    }
}
