//! Files in Filebench's language: what is read, what is refused, and what they do.

use basalt_workloads::{Files, Kind, Limit, Operation, Phase, Settings, Unobserved, VfsFiles, by_name, run};

use crate::job_files::{complaint, operations, workload, write};
use crate::support::{SIZE, Volume};

const ALL: usize = usize::MAX;

fn settings() -> Settings {
    Settings { size_bytes: SIZE, seed: 3, ..Settings::default() }
}

/// A fileset of ten files of 64 KiB, and one thread that does this.
fn thread(flowops: &str) -> String {
    format!(
        "define fileset name=set,path=/a,size=64k,entries=10,prealloc\ndefine process name=p {{\nthread name=t {{\n{flowops}\n}} }}\n"
    )
}

/// What a text does once its files are there, as many steps at most.
fn measured(text: &str, steps: usize) -> Vec<Operation> {
    let mut workload = workload("t.f", text, "", &settings()).unwrap_or_else(|error| panic!("{error}: {text}"));
    operations(&mut *workload, Phase::Prepare, ALL);
    operations(&mut *workload, Phase::Measure, steps)
}

fn kinds(operations: &[Operation]) -> Vec<Kind> {
    operations.iter().map(Operation::kind).collect()
}

fn count(operations: &[Operation], kind: Kind) -> usize {
    operations.iter().filter(|operation| operation.kind() == kind).count()
}

/// Offsets and lengths of what is read or written.
fn ranges(operations: &[Operation]) -> Vec<(u64, u32)> {
    let range = |operation: &Operation| match operation {
        Operation::Read { offset, length, .. } | Operation::Write { offset, length, .. } => Some((*offset, *length)),
        _ => None,
    };
    operations.iter().filter_map(range).collect()
}

#[test]
fn what_is_wrong_is_said_with_its_line() {
    let set = "define fileset name=s,entries=4,size=4k\n";
    for (text, line) in [
        ("", "t.f:1: there is no process; write `define process name=… { thread … { flowop … } }`"),
        ("load varmail\n", "t.f:1: command `load` is not known or not supported"),
        ("system \"rm -rf /\"\n", "t.f:1: command `system` is not known or not supported"),
        ("foreach $x in 1, 2 { run 1 }", "t.f:1: command `foreach` is not known or not supported"),
        ("\nset $x 5", "t.f:2: `=` is expected, and there is `5`"),
        ("set x=5", "t.f:1: set: `x` is not `$name` or `mode quit`"),
        ("set $x=5t", "t.f:1: `5t` is not a number such as 16, 16k, 16m or 16g"),
        ("set $x=99999999999999999999", "t.f:1: `99999999999999999999` is not a number such as 16, 16k, 16m or 16g"),
        ("set $x=$y", "t.f:1: $y is not set"),
        ("set $x=5 - 6", "t.f:1: $x: `-` needs two numbers that it suits"),
        ("set $x=5 / 0", "t.f:1: $x: `/` needs two numbers that it suits"),
        ("set $x=", "t.f:1: the file ends in the middle of something"),
        ("set mode quit now", "t.f:1: mode quit now is not known or not supported"),
        ("echo hello", "t.f:1: echo: `hello` is not a text between quotes"),
        ("echo \"hello", "t.f:1: a text does not end with `\"` on its line"),
        ("set $x=5 ?", "t.f:1: `?` does not belong here"),
        ("set $=5", "t.f:1: `$` without a name"),
        (
            "set $x=cvar(type=cvar-normal,parameters=mean:1;sigma:2)",
            "t.f:1: cvar: what is supported is cvar-gamma with mean and gamma (from 1 on), or cvar-uniform with lower and upper",
        ),
        (
            "set $x=cvar(type=cvar-gamma,parameters=mean:9;gamma:2;beta:1)",
            "t.f:1: cvar: parameter `beta` is not known or not supported",
        ),
        ("define randvar name=$x,type=uniform", "t.f:1: define randvar is not known or not supported"),
        ("define fileset path=/tmp,entries=1", "t.f:1: fileset: `name` is missing"),
        ("define fileset name=a,path=/tmp", "t.f:1: fileset: `entries` is missing"),
        ("define fileset name=a,entries=0", "t.f:1: fileset: entries is not a number from 1 to 10000000"),
        ("define fileset name=a,entries=1,\nprealloc=101", "t.f:2: fileset: prealloc is not a number from 0 to 100"),
        ("define fileset name=a,entries=1,leafdirs=4", "t.f:1: fileset: leafdirs is not a number from 0 to 0"),
        (
            "define fileset name=a,entries=1,colour=4",
            "t.f:1: fileset: attribute `colour` is not known or not supported",
        ),
        ("define fileset name=a,entries=1,entries=2", "t.f:1: fileset: `entries` is given twice"),
        (
            "define fileset name=a,path=../../etc,entries=1",
            "t.f:1: `../../etc/a` leaves the target; name a path without `..`",
        ),
        ("define fileset name=dummy,entries=1", "t.f:1: `dummy` is in use by the lab itself; use another name"),
        ("define file name=a\ndefine file name=a", "t.f:2: file: `a` is there already"),
        (
            "define process name=p { thread name=t { flowop aiowrite name=x } }",
            "t.f:1: flowop aiowrite is not known or not supported",
        ),
        ("define process name=p { thread name=t { read name=x } }", "t.f:1: thread: `read` is not `flowop`"),
        (
            "define process name=p { thread name=t { flowop delay value=1 }",
            "t.f:1: the file ends where `thread` or `}` is expected",
        ),
        (
            "define process name=p { thread name=t { flowop delay value=1 } }",
            "t.f:1: thread: none of its flowops does anything",
        ),
        (
            "define process name=p { thread name=t { flowop openfile fd=1 } }",
            "t.f:1: flowop openfile: `filesetname` is missing",
        ),
        (
            "define process name=p { thread name=t { flowop openfile filesetname=s,fd=1 } }",
            "t.f:1: flowop openfile: no fileset `s` is defined above",
        ),
        ("define process name=p,instances=2000 { }", "t.f:1: process: instances is not a number from 1 to 1000"),
        (
            "define process name=p,instances=100 { thread name=t,instances=100 { flowop delay value=1 } }",
            "t.f:1: more than 1000 threads or 10000 open files; lower instances",
        ),
    ] {
        assert_eq!(complaint("t.f", text, &settings()), line, "{text}");
    }
    for (flowops, line) in [
        ("flowop closefile fd=1", "t.f:4: flowop closefile: fd 1 is not open"),
        ("flowop fsync fd=1", "t.f:4: flowop fsync: fd 1 is not open"),
        ("flowop openfile filesetname=set,fd=1", "t.f:4: flowop openfile: fd 1 is open already; close it first"),
        (
            "flowop read fd=1,iosize=4k",
            "t.f:4: flowop read: fd 1 is not open, and there is no filesetname to open a file of",
        ),
        ("flowop read filesetname=set", "t.f:4: flowop read: `iosize` is missing"),
        ("flowop write filesetname=set,iosize=2g", "t.f:4: flowop write: iosize is above 1073741824 bytes"),
        (
            "flowop write filesetname=set,iosize=4k,dsync",
            "t.f:4: flowop write: dsync is not supported: it changes the operations; write a flowop fsync",
        ),
        (
            "flowop write filesetname=set,iosize=4k,opennext",
            "t.f:4: flowop write: attribute `opennext` is not known or not supported",
        ),
        ("flowop deletefile fd=0", "t.f:4: flowop deletefile: `filesetname` is missing"),
        (
            "flowop openfile filesetname=set,fd=1\nflowop deletefile filesetname=set,fd=1",
            "t.f:5: flowop deletefile: fd 1 is still open; close it first",
        ),
        ("flowop openfile filesetname=set,fd=1,iters=3", "t.f:4: flowop openfile: `iters` makes no sense here"),
        ("flowop statfile filesetname=set,fd=200", "t.f:4: flowop statfile: fd is not a number from 0 to 128"),
    ] {
        assert_eq!(complaint("t.f", &thread(flowops), &settings()), line, "{flowops}");
    }
    let waits = "define process name=p { thread name=a { flowop write filesetname=s,iosize=4k }\nthread name=b { flowop delay value=1\n\
        flowop read filesetname=s,iosize=4k } }";
    let line =
        "t.f:3: threads that wait beside threads that do not depend on the clock, and a workload has none; remove it";
    assert_eq!(complaint("t.f", &format!("{set}{waits}"), &settings()), line);
    let line =
        workload("t.f", &thread("flowop listdir filesetname=set"), ":files=3", &settings()).err().unwrap().to_string();
    assert!(line.ends_with("t.f: option files: the file sets no variable $files"), "{line}");
}

#[test]
fn hostile_files_are_one_line_and_cost_nothing() {
    let many = "define fileset name=a,entries=10000000,size=16777215g,prealloc\ndefine process name=p { thread name=t { flowop listdir filesetname=a } }";
    let line = complaint("t.f", many, &settings());
    assert!(line.contains("its files need 40960000000 bytes"), "{line}");
    let large = many.replace("10000000", "1000");
    let line = complaint("t.f", &large, &settings());
    // One of them is larger than the volume.
    assert!(line.contains("its files need 18014397435740160 bytes"), "{line}");
    let deep = "define process { thread { ".repeat(1000);
    assert_eq!(complaint("t.f", &deep, &settings()), "t.f:1: thread: `define` is not `flowop`");
    let flowops = "flowop listdir filesetname=set\n".repeat(10_001);
    assert_eq!(complaint("t.f", &thread(&flowops), &settings()), "t.f:10004: more than 10000 flowops");
    let sets: String = (0..101).map(|set| format!("define file name=f{set}\n")).collect();
    assert_eq!(complaint("t.f", &sets, &settings()), "t.f:101: more than 100 filesets");
    // Whatever is cut out of a file, it is one line or a workload.
    let text = std::fs::read_to_string("../../experiments/mail-server.f").unwrap();
    for end in (0..text.len()).step_by(7) {
        let line = complaint("t.f", &text[..end], &settings());
        assert!(line.lines().count() <= 1, "{line}");
    }
}

/// The language's corners: units, sums, variables in paths, quotes, signs, commands that only show or wait.
#[test]
fn the_subset_is_read() {
    let text = "# remark\nset mode quit timeout\nset $dir = \"/srv/data\"\nset $n=4\nset $size=4k * 4\neventgen rate=0\ndebug 1\n\
        define fileset name=\"set\", path=$dir/deep, filesize=$size, entries=${n}, dirwidth=2, prealloc=100, reuse, paralloc # end\n\
        define file name=big,path=$dir,size=1m,prealloc\n\
        define process name=p,instances=2\n{\n  thread name=t,memsize=1m,instances=2,useism\n  {\n\
        flowop openfile name=o,filesetname=set,fd=1\nflowop readwholefile fd=1,\n  iosize=8k\nflowop closefile fd=1\n\
        flowop write filename=big,fd=2,iosize=64k,random,iters=3\nflowop fsyncset filesetname=big\nflowop hog value=99\n\
        flowop bwlimit name=limit\nflowop listdir filesetname=set\nflowop statfile filesetname=set\n  }\n}\n\
        create files\necho \"n is $n\"\nusage \"Usage: set \\$dir=<dir> \\\"x\\\"\"\nrun 60\npsrun -10 60\n";
    let mut workload = workload("t.f", text, "", &settings()).unwrap_or_else(|error| panic!("{error}"));
    let plan = workload.plan();
    assert_eq!((plan.initial_bytes, plan.peak_bytes), (4 * 16384 + (1 << 20), 4 * 16384 + (1 << 20)));
    assert_eq!(plan.measure, Limit::Bytes(SIZE / 8));
    let made = operations(&mut *workload, Phase::Prepare, ALL);
    for path in ["srv", "srv/data", "srv/data/deep", "srv/data/deep/set", "srv/data/deep/set/d0001", "srv/data/big"] {
        assert!(made.contains(&Operation::MakeDirectory(path.to_owned())), "{path}: {made:?}");
    }
    assert_eq!(count(&made, Kind::Create), 5);
    let done = operations(&mut *workload, Phase::Measure, 4 * 40);
    // Of each thread, in turn.
    let first: Vec<Kind> = done.iter().step_by(4).take(12).map(Operation::kind).collect();
    use Kind::{Close, Fsync, List, Open, Read, Stat, Write};
    assert_eq!(first, [Open, Read, Read, Close, Open, Write, Write, Write, Fsync, List, Stat, Open]);
    assert!(ranges(&done).iter().all(|(offset, length)| offset % u64::from(*length) == 0));
    // Variables of the file can be given with its name.
    let mut other = crate::job_files::workload("t.f", text, ":n=8,dir=/x", &settings()).unwrap();
    let made = operations(&mut *other, Phase::Prepare, ALL);
    assert_eq!(count(&made, Kind::Create), 9);
    assert!(made.contains(&Operation::MakeDirectory("x/deep/set".to_owned())));
}

#[test]
fn reads_and_writes_stay_in_their_files() {
    // In order: the whole file, and again.
    let done = measured(&thread("flowop read filesetname=set,iosize=24k"), 8);
    assert_eq!(
        ranges(&done),
        [(0, 24576), (24576, 24576), (49152, 16384), (0, 24576), (24576, 24576), (49152, 16384), (0, 24576)]
    );
    let done = measured(&thread("flowop write filesetname=set,iosize=24k,workingset=50k"), 5);
    assert_eq!(ranges(&done), [(0, 24576), (24576, 24576), (0, 24576), (24576, 24576)]);
    let done = measured(&thread("flowop write filesetname=set,iosize=4k,random,workingset=16k"), 400);
    let mut offsets: Vec<u64> = ranges(&done).iter().map(|range| range.0).collect();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets, [0, 4096, 8192, 12288]);
    // Appends begin where the file ends; a whole write has the size of the set, in requests of the given size.
    let text = thread(
        "flowop openfile filesetname=set,fd=1\nflowop appendfile fd=1,iosize=5k,iters=2\nflowop closefile fd=1\nflowop deletefile \
         filesetname=set,fd=1\nflowop createfile filesetname=set,fd=1\nflowop writewholefile fd=1,iosize=48k\nflowop closefile fd=1",
    );
    let done = measured(&text, 9);
    use Kind::{Close, Create, Open, Unlink, Write};
    assert_eq!(kinds(&done), [Open, Write, Write, Close, Unlink, Create, Write, Write, Close]);
    assert_eq!(ranges(&done), [(65536, 5120), (70656, 5120), (0, 49152), (49152, 16384)]);
    assert_eq!(
        done[0],
        Operation::Open(
            basalt_workloads::File(1),
            match &done[4] {
                Operation::Unlink(path) => path.clone(),
                other => panic!("{other:?}"),
            }
        )
    );
}

/// Runs that end by themselves: nothing left to make, or a flowop that ends them.
#[test]
fn runs_end_as_the_file_says() {
    let create = "define fileset name=s,entries=50,size=8k\ndefine process name=p { thread name=t,instances=3 {\n\
        flowop createfile filesetname=s,fd=1\nflowop writewholefile fd=1\nflowop closefile fd=1\n} }\n";
    for mode in ["firstdone", "alldone"] {
        let text = format!("set mode quit {mode}\n{create}");
        let plan = workload("t.f", &text, "", &settings()).unwrap().plan();
        assert_eq!((plan.age, plan.measure), (Limit::Operations(0), Limit::Operations(u64::MAX)), "{mode}");
        let most = plan.peak_bytes / 8192;
        assert!(plan.initial_bytes == 0 && (48..=50).contains(&most), "{mode}: {plan:?}");
        let done = measured(&text, ALL);
        assert_eq!(count(&done, Kind::Create), 50, "{mode}");
        // The first thread without a file ends the run; the two others may be about to write then.
        let least = if mode == "firstdone" { 48 } else { 50 };
        assert!((least..=50).contains(&count(&done, Kind::Write)), "{mode}: {}", count(&done, Kind::Write));
    }
    let done = measured(&thread("flowop statfile filesetname=set\nflowop finishoncount value=7"), ALL);
    assert_eq!(done.len(), 7);
    let done = measured(&thread("flowop write filesetname=set,iosize=4k\nflowop finishonbytes value=64k"), ALL);
    assert_eq!(count(&done, Kind::Write), 16);
    // Never out of files: the phase ends it, and the trial that finds that out does not go on for ever.
    let text = format!("set mode quit firstdone\n{}", thread("flowop statfile filesetname=set"));
    assert_eq!(workload("t.f", &text, "", &settings()).unwrap().plan().measure, Limit::Operations(SIZE / 8 / 4096));
}

/// Files that grow are planned with what they grow by.
#[test]
fn growth_is_part_of_the_plan() {
    let text = thread("flowop appendfile filesetname=set,fd=1,iosize=64k\nflowop closefile fd=1");
    let plan = workload("t.f", &text, "", &settings()).unwrap().plan();
    // 5/16 and 1/8 of the volume are written; nothing is deleted.
    let written = SIZE / 16 * 5 + SIZE / 8;
    assert_eq!(plan.initial_bytes, 10 * 65536);
    assert_eq!(plan.peak_bytes, 10 * 65536 + written);
    let settings = Settings { age: Some(Limit::Bytes(0)), measure: Some(Limit::Bytes(SIZE)), ..settings() };
    let line = workload("t.f", &text, "", &settings).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(line.contains("its files need 269090816 bytes"), "{line}");
}

/// With the numbers of the built-in `varmail`: as many operations of each kind within 2 %, writes and reads as large within 3 and 5 %,
/// as many bytes at first within 5 %.
#[test]
fn a_mail_server_is_the_built_in_varmail() {
    let steps = 100_000;
    let mut file = by_name("../../experiments/mail-server.f", &settings()).unwrap();
    let mut built_in = by_name("varmail:set=24M,mean=32K,append=16K,threads=16", &settings()).unwrap();
    let near = |ours: f64, theirs: f64, percent: f64, what: &str| {
        assert!((ours / theirs - 1.0).abs() * 100.0 < percent, "{what}: {ours} from the file, {theirs} built in");
    };
    near(file.plan().initial_bytes as f64, built_in.plan().initial_bytes as f64, 5.0, "bytes at first");
    let made = [&mut file, &mut built_in].map(|workload| operations(&mut **workload, Phase::Prepare, ALL));
    near(count(&made[0], Kind::Create) as f64, count(&made[1], Kind::Create) as f64, 5.0, "files at first");
    let done = [&mut file, &mut built_in].map(|workload| operations(&mut **workload, Phase::Measure, steps));
    for kind in Kind::ALL {
        let counts = [0, 1].map(|side| count(&done[side], kind) as f64);
        if counts != [0.0, 0.0] {
            near(counts[0], counts[1], 2.0, kind.name());
        }
    }
    for (kind, percent) in [(Kind::Write, 3.0), (Kind::Read, 5.0)] {
        let mean = |all: &[Operation]| {
            let some: Vec<Operation> = all.iter().filter(|operation| operation.kind() == kind).cloned().collect();
            ranges(&some).iter().map(|range| f64::from(range.1)).sum::<f64>() / some.len() as f64
        };
        near(mean(&done[0]), mean(&done[1]), percent, &format!("bytes a {}", kind.name()));
    }
}

/// On an engine: what is read is what was written, the same every time, another with another seed; the volume is sound.
#[test]
fn files_run_on_an_engine() {
    let place = tempfile::tempdir().unwrap();
    let text = "define fileset name=s,path=/x,size=cvar(type=cvar-uniform,parameters=lower:1k;upper:300k),entries=60,dirwidth=5,prealloc=50\n\
        define process name=p { thread name=a,instances=4 {\nflowop createfile filesetname=s,fd=1\nflowop writewholefile fd=1,iosize=64k\n\
        flowop fsync fd=1\nflowop closefile fd=1\nflowop deletefile filesetname=s\n}\nthread name=b,instances=3 {\n\
        flowop read filesetname=s,iosize=10k,random,iters=3\nflowop appendfilerand fd=0,iosize=9k\nflowop closefile fd=0\n\
        flowop statfile filesetname=s\nflowop listdir filesetname=s\n} }\n";
    let path = write(place.path(), "t.f", text);
    let mut hashes = Vec::new();
    for seed in [1, 1, 2] {
        let measure = Some(Limit::Bytes(24 << 20));
        let age = Some(Limit::Bytes(4 << 20));
        let settings = Settings { seed, verify: true, age, measure, dummy_bytes: Some(1 << 20), ..settings() };
        let mut workload = by_name(&path, &settings).unwrap();
        let peak = workload.plan().peak_bytes;
        let volume = Volume::new();
        let mut files = VfsFiles::new(volume.engine.clone());
        let free = files.free_bytes().unwrap();
        let report =
            run(&mut *workload, &settings, &mut files, &mut Unobserved).unwrap_or_else(|error| panic!("{error}"));
        assert!(report.measure.written_bytes >= 24 << 20, "{report:?}");
        assert!(report.verified_bytes > 1 << 20 && report.measure.fsyncs > 50, "{report:?}");
        assert!(free - files.free_bytes().unwrap() < peak + (4 << 20), "planned {peak}");
        hashes.push(report.measure.operation_hash);
        drop(files);
        volume.close_and_check("filebench");
    }
    assert_eq!(hashes[0], hashes[1]);
    assert_ne!(hashes[0], hashes[2]);
}

/// A whole write has the size of the file that `srcfd` names.
#[test]
fn a_whole_write_takes_the_size_of_its_source() {
    let text = "define fileset name=from,size=96k,entries=3,prealloc\ndefine fileset name=to,size=8k,entries=3\n\
        define process name=p { thread name=t {\nflowop openfile filesetname=from,fd=1\nflowop createfile filesetname=to,fd=2\n\
        flowop writewholefile fd=2,srcfd=1,iosize=64k\nflowop closefile fd=1\nflowop closefile fd=2\n} }\n";
    assert_eq!(ranges(&measured(text, 6)), [(0, 65536), (65536, 32768)]);
}

/// What a removed file has grown by is free again: files that grow and are removed need no more than those that are there.
#[test]
fn growth_goes_with_its_file() {
    let text = thread(
        "flowop openfile filesetname=set,fd=1\nflowop appendfile fd=1,iosize=1m\nflowop closefile fd=1\nflowop deletefile \
         filesetname=set,fd=1\nflowop createfile filesetname=set,fd=1\nflowop writewholefile fd=1\nflowop closefile fd=1",
    );
    let plan = workload("t.f", &text, "", &settings()).unwrap().plan();
    let all = 10 * 65536;
    assert!((all + (1 << 20)..=all + (2 << 20)).contains(&plan.peak_bytes), "{plan:?}");
}
