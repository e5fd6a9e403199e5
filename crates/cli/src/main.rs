//! `raddle`: the one binary. Arguments are read here, work is done by the crates below.

mod args;
mod cluster;
mod confine;
mod inspect;
mod journals;
mod output;
mod parts;
mod picture;
mod plan;
mod profile;
mod serve;
mod serve_example;
mod simulate;
mod zoo;

use args::{Cli, Command, SimulateWhat};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    init_log(cli.verbose, cli.log_format);
    let format = cli.format;
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Simulate(args) => match (args.what, args.scenario) {
            (Some(SimulateWhat::Cluster(args)), _) => cluster::run(&args, format),
            (Some(SimulateWhat::ClusterReplay(args)), _) => cluster::replay(&args.journal, format),
            (None, Some(args)) => simulate::run(&args, format),
            (None, None) => unreachable!("without a subcommand, a scenario is required"),
        },
        Command::Profile(args) => profile::run(&args, format),
        Command::Inspect(args) => inspect::run(&args, format),
        Command::Parts(args) => parts::run(&args, format),
        Command::Replay(args) => return journals::replay(&args, format),
        Command::Explain(args) => journals::explain(&args, format),
        Command::Timeline(args) => journals::timeline(&args),
        Command::Zoo(args) => zoo::run(&args, format),
        Command::Plan(args) => plan::run(&args, format),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Logs go to stderr; stdout carries data only.
fn init_log(verbose: u8, format: args::LogFormat) {
    use tracing_subscriber::EnvFilter;
    let default = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    // Below us tract says a lot that only its authors can use.
    let rules = format!("{default},tract_core=error,tract_onnx=error,tract_hir=error,tract_linalg=error");
    let filter = EnvFilter::try_from_env("RADDLE_LOG").unwrap_or_else(|_| EnvFilter::new(rules));
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match format {
        args::LogFormat::Text => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr())
                && std::env::var_os("NO_COLOR").is_none();
            builder.with_ansi(ansi).init();
        }
        args::LogFormat::Json => builder.json().init(),
    }
}
