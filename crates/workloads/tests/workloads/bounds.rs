//! Job files that would never end, or take memory without bounds.

use basalt_workloads::{Limit, Operation, Phase, Settings};

use crate::job_files::{complaint, operations, workload};

fn settings() -> Settings {
    Settings { size_bytes: 128 << 20, utilization_percent: 60, ..Settings::default() }
}

const READS_FIO: &str = "[j]\nrw=randread\nbs=4k\nsize=16m\ntime_based\nruntime=10\n";
const READS: &str = "define file name=a,path=/x,size=4m,prealloc\ndefine process name=p {\n thread name=t {\n  \
                     flowop openfile name=o,filename=a,fd=1\n  flowop readwholefile name=r,fd=1,iosize=1m\n  \
                     flowop closefile name=c,fd=1\n }\n}\nrun 10\n";

/// Bytes written would never be enough.
#[test]
fn what_only_reads_ends_after_operations() {
    for (name, text) in [("r.fio", READS_FIO), ("r.f", READS)] {
        let plan = workload(name, text, "", &settings()).unwrap_or_else(|error| panic!("{error}")).plan();
        // An eighth of the volume in blocks.
        assert_eq!((plan.age, plan.measure), (Limit::Operations(0), Limit::Operations(4096)), "{name}");
    }
}

#[test]
fn no_file_is_larger_than_the_volume() {
    let text = "define file name=a,path=/x,size=18446744073709551615,prealloc=0\ndefine process name=p {\n thread name=t {\n  \
                flowop createfile name=m,filename=a,fd=1\n  flowop writewholefile name=w,fd=1,iosize=1m\n  \
                flowop closefile name=c,fd=1\n }\n}\nrun 10\n";
    let line = complaint("w.f", text, &settings());
    assert!(line.contains("its files need") && line.lines().count() == 1, "{line}");
}

/// A whole file in requests of a byte is no more than 2^18 requests, and has all of its bytes.
#[test]
fn one_flowop_makes_a_bounded_number_of_requests() {
    let text = READS.replace("size=4m", "size=40m").replace("iosize=1m", "iosize=1");
    let mut workload = workload("r.f", &text, "", &settings()).unwrap_or_else(|error| panic!("{error}"));
    while !operations(workload.as_mut(), Phase::Prepare, 1000).is_empty() {}
    let all = operations(workload.as_mut(), Phase::Measure, 3 << 18);
    let lengths = all.iter().skip(1).map_while(|operation| match operation {
        Operation::Read { length, .. } => Some(u64::from(*length)),
        _ => None,
    });
    let lengths: Vec<u64> = lengths.collect();
    assert!((1 << 17..=1 << 18).contains(&lengths.len()), "{}", lengths.len());
    assert_eq!(lengths.iter().sum::<u64>(), 40 << 20);
}
