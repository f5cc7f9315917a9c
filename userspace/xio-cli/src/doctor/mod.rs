// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio doctor`: whether controllers can be used here, and what to do if not. Nothing is touched.

mod bridges;
mod functions;
mod kernel;
mod module;
#[cfg(test)]
mod tests;
mod user;

use crate::args::Format;
use crate::exit::{self, Failure};
use crate::output;
use crate::system::System;
use serde::Serialize;
use xio::gpu::Gpu;

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something is slower or missing that not everybody needs.
    Note,
    /// Something does not work.
    Problem,
}

/// What was found about one thing.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    topic: &'static str,
    level: Level,
    what: String,
    /// What to do.
    remedy: Option<String>,
}

impl Finding {
    fn ok(topic: &'static str, what: impl Into<String>) -> Self {
        Self { topic, level: Level::Ok, what: what.into(), remedy: None }
    }

    fn note(topic: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { topic, level: Level::Note, what: what.into(), remedy: Some(remedy.into()) }
    }

    fn problem(topic: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { topic, level: Level::Problem, what: what.into(), remedy: Some(remedy.into()) }
    }
}

/// Everything that was found.
#[derive(Debug, Serialize)]
struct Report {
    problems: usize,
    kernel: kernel::Kernel,
    module: Option<module::Module>,
    functions: Vec<functions::Controller>,
    gpus: Vec<String>,
    findings: Vec<Finding>,
}

/// `xio doctor`.
pub fn run(format: Format) -> Result<(), Failure> {
    let system = System::default();
    let mut report = examine(&system)?;
    report.findings.push(user::locked_memory()?);
    let nodes: Vec<&String> = report.functions.iter().filter_map(|function| function.node.as_ref()).collect();
    let direct: Vec<Finding> = nodes.into_iter().filter_map(|node| user::direct(node)).collect();
    report.findings.extend(direct);
    runtimes(&mut report);
    report.count();
    match format {
        Format::Json => output::json(&report)?,
        Format::Text => output::text(&report.text())?,
    }
    if report.problems > 0 {
        return Err(Failure::Told(exit::PROBLEMS));
    }
    Ok(())
}

/// What files say.
fn examine(system: &System) -> Result<Report, Failure> {
    let mut findings = Vec::new();
    let module = module::Module::read(system)?;
    let kernel = kernel::Kernel::read(system)?;
    kernel.judge(module.is_some(), &mut findings);
    module::judge(module.as_ref(), &kernel, &mut findings);
    let functions = functions::all(system)?;
    functions::judge(&functions, module.is_some(), &mut findings);
    for node in functions.iter().filter_map(|function| function.node.as_ref()) {
        findings.push(user::node(system, node)?);
    }
    let mut report = Report { problems: 0, kernel, module, functions, gpus: Vec::new(), findings };
    report.count();
    Ok(report)
}

/// Devices that run kernels, and runtimes that are not there.
fn runtimes(report: &mut Report) {
    let (found, missing) = Gpu::list();
    report.gpus =
        found.iter().map(|gpu| format!("{} ({}), kernels {}", gpu.name, gpu.which, gpu.kernels)).collect();
    report.findings.extend(report.gpus.iter().map(|gpu| Finding::ok("gpu", gpu.as_str())));
    let remedy = "needed for --gpu only: install ROCm or the NVIDIA driver if there is such a GPU";
    report.findings.extend(missing.iter().map(|why| Finding::note("gpu", why.to_string(), remedy)));
}

impl Report {
    fn count(&mut self) {
        self.problems = self.findings.iter().filter(|finding| finding.level == Level::Problem).count();
    }

    fn text(&self) -> String {
        let rows = self.findings.iter().flat_map(|finding| {
            let level = match finding.level {
                Level::Ok => "ok",
                Level::Note => "note",
                Level::Problem => "PROBLEM",
            };
            let cells =
                |level: &str, topic: &str, text: String| vec![format!("{level:7}"), topic.to_owned(), text];
            let remedy = finding.remedy.iter().map(move |remedy| cells("", "", format!("-> {remedy}")));
            std::iter::once(cells(level, finding.topic, finding.what.clone())).chain(remedy)
        });
        let end = match self.problems {
            0 => "no problems".to_owned(),
            1 => "1 problem".to_owned(),
            many => format!("{many} problems"),
        };
        format!("{}{end}\n", output::columns(&rows.collect::<Vec<_>>()))
    }
}
