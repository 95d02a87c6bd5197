//! How large the binary is.

use std::path::Path;

pub(crate) fn run() {
    let built = Path::new(env!("CARGO_BIN_EXE_haptic-agent"));
    print("as this bench runs it", built);
    let fixed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/static/haptic-agent");
    if fixed.is_file() {
        print("without a dynamic loader (make static)", &fixed);
    } else {
        println!("  without a dynamic loader: run make static first");
    }
}

fn print(what: &str, path: &Path) {
    let bytes = std::fs::metadata(path).unwrap().len();
    println!("  {what}: {bytes} bytes");
}
