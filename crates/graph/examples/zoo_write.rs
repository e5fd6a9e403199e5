//! Writes models of the zoo: `zoo_write FOLDER [NAME…]`, all of them when none is named.

use graph::zoo::{self, ZooOptions};
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

#[expect(clippy::print_stdout, reason = "an example reports on its standard output")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("name a folder: zoo_write FOLDER [NAME…]")?);
    let asked: Vec<String> = arguments.collect();
    let all = || zoo::names().iter().map(ToString::to_string).collect();
    let names = if asked.is_empty() { all() } else { asked };
    std::fs::create_dir_all(&folder)?;
    for name in names {
        let start = Instant::now();
        let path = folder.join(format!("{name}.onnx"));
        zoo::write(&name, &path, &ZooOptions::default())?;
        let bytes = std::fs::metadata(&path)?.len();
        println!("{name:18} {:7.1} MB in {:.2} s", bytes as f64 / 1e6, start.elapsed().as_secs_f64());
    }
    Ok(())
}
