// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software controllers of a machine, and what a guest may ask of its host.
//!
//! A guest test writes `host: ACTION` on its report line and reads one line back, `done …` or `failed …`:
//! * `kill N`, `stop N`, `cont N`: signals to controller N;
//! * `restart N`: kills controller N and starts it anew on the same socket;
//! * `faults N RULE;RULE…`: makes controller N misbehave by these rules; without any, behave again;
//! * `qmp JSON`: a command for QEMU, in which `@SOCKET<N>@` stands for controller N's socket.

use crate::setup::Setup;
use anyhow::{bail, Context, Result};
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(20);
const QMP_LIMIT: Duration = Duration::from_secs(20);

/// Starts a program that dies with this one, however that ends.
pub(crate) fn dying_with_us(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// Kills a child and collects it. A child that has ended already is no error.
pub(crate) fn put_down(child: &mut Child) {
    let killed = child.kill();
    if let Err(error) = killed.and_then(|()| child.wait()) {
        eprintln!("xio-vm: process {} could not be ended: {error}", child.id());
    }
}

struct Controller {
    child: Child,
    options: Vec<String>,
    log: PathBuf,
    expected_to_die: bool,
}

/// The running controllers of one machine; dropping them ends them.
pub(crate) struct Controllers {
    program: PathBuf,
    dir: PathBuf,
    list: Vec<Controller>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.list.iter_mut().for_each(|controller| put_down(&mut controller.child));
    }
}

impl Controllers {
    /// Starts one process for each list of options and waits until all listen.
    pub(crate) fn start(setup: &Setup, all: &[Vec<String>], dir: &Path, logs: &Path) -> Result<Self> {
        let program = setup.host_program("xio-target");
        if !all.is_empty() && !program.exists() {
            bail!("{} is not built: run `cargo build --release -p xio-target`", program.display());
        }
        let mut this = Self { program, dir: dir.to_owned(), list: Vec::new() };
        for (index, options) in all.iter().enumerate() {
            let log = logs.join(format!("target{index}.log"));
            let child = this.spawn(index, options, &log)?;
            this.list.push(Controller { child, options: options.clone(), log, expected_to_die: false });
        }
        (0..this.list.len()).try_for_each(|index| this.wait_until_listening(index))?;
        Ok(this)
    }

    fn socket(&self, index: usize) -> PathBuf {
        self.dir.join(format!("s{index}"))
    }

    fn control(&self, index: usize) -> PathBuf {
        self.dir.join(format!("c{index}"))
    }

    fn spawn(&self, index: usize, options: &[String], log: &Path) -> Result<Child> {
        let output = OpenOptions::new().create(true).append(true).open(log)?;
        dying_with_us(&self.program)
            .args(["serve", "--socket"])
            .arg(self.socket(index))
            .arg("--control")
            .arg(self.control(index))
            .args(options)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("starting xio-target through setpriv (package util-linux)")
    }

    fn wait_until_listening(&mut self, index: usize) -> Result<()> {
        let (socket, end) = (self.socket(index), Instant::now() + START_LIMIT);
        while !socket.exists() {
            let controller = &mut self.list[index];
            if let Some(status) = controller.child.try_wait()? {
                let log = fs::read_to_string(&controller.log)?;
                bail!("controller {index} ended at once ({status}): {}", log.trim());
            }
            if Instant::now() > end {
                bail!("controller {index} did not listen on {} within {START_LIMIT:?}", socket.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The first controller that failed by itself, in words.
    pub(crate) fn casualty(&mut self) -> Result<Option<String>> {
        for (index, controller) in self.list.iter_mut().enumerate() {
            if let Some(status) = controller.child.try_wait()? {
                if !controller.expected_to_die && !status.success() {
                    return Ok(Some(format!("controller {index} ended with {status}")));
                }
            }
        }
        Ok(None)
    }

    /// Does what the guest asks and answers in one line.
    pub(crate) fn perform(&mut self, request: &str) -> String {
        match self.try_perform(request) {
            Ok(answer) => format!("done {answer}"),
            Err(error) => format!("failed {error:#}").replace('\n', " "),
        }
    }

    fn try_perform(&mut self, request: &str) -> Result<String> {
        let (action, argument) = request.trim().split_once(' ').context("an action needs an argument")?;
        if action == "qmp" {
            return self.qmp(argument);
        }
        if action == "faults" {
            let (index, rules) = argument.split_once(' ').unwrap_or((argument, ""));
            return self.faults(index.parse().context("not the number of a controller")?, rules);
        }
        let index: usize = argument.parse().context("not the number of a controller")?;
        let controller = self.list.get_mut(index).context("no such controller")?;
        let pid = Pid::from_raw(i32::try_from(controller.child.id())?);
        match action {
            "stop" => kill(pid, Signal::SIGSTOP)?,
            "cont" => kill(pid, Signal::SIGCONT)?,
            "kill" | "restart" => {
                controller.expected_to_die = true;
                put_down(&mut controller.child);
            }
            _ => bail!("unknown action {action}"),
        }
        if action == "restart" {
            let (options, log) = (controller.options.clone(), controller.log.clone());
            for socket in [self.socket(index), self.control(index)].iter().filter(|socket| socket.exists()) {
                fs::remove_file(socket)?;
            }
            self.list[index].child = self.spawn(index, &options, &log)?;
            self.list[index].expected_to_die = false;
            self.wait_until_listening(index)?;
        }
        Ok(String::new())
    }

    fn faults(&self, index: usize, rules: &str) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["ctl", "--control"]).arg(self.control(index)).arg("faults");
        if rules.is_empty() {
            command.arg("clear");
        } else {
            command.args(["set", "0"]);
            command.args(rules.split(';').flat_map(|rule| ["--rule", rule.trim()]));
        }
        let output = command.output().context("running xio-target ctl")?;
        if !output.status.success() {
            bail!("xio-target ctl: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::new())
    }

    fn qmp(&self, command: &str) -> Result<String> {
        let mut command = command.to_owned();
        for index in 0..self.list.len() {
            let socket = self.socket(index);
            command = command.replace(&format!("@SOCKET{index}@"), &socket.to_string_lossy());
        }
        let stream = UnixStream::connect(self.dir.join("qmp")).context("connecting to QEMU")?;
        stream.set_read_timeout(Some(QMP_LIMIT))?;
        let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), stream);
        read_reply(&mut reader, "\"QMP\"")?;
        writeln!(writer, r#"{{"execute":"qmp_capabilities"}}"#)?;
        read_reply(&mut reader, "\"return\"")?;
        writeln!(writer, "{command}")?;
        read_reply(&mut reader, "\"return\"")
    }
}

/// Reads until a line with the key comes; events are passed over, an error ends it.
fn read_reply(reader: &mut impl BufRead, key: &str) -> Result<String> {
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).context("waiting for QEMU's answer")? == 0 {
            bail!("QEMU closed its command socket");
        }
        if line.contains("\"error\"") {
            bail!("QEMU refused: {}", line.trim());
        }
        if line.contains(key) && !line.contains("\"event\"") {
            return Ok(line.trim().to_owned());
        }
    }
}

/// A log file, empty.
pub(crate) fn new_log(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("creating {}", path.display()))
}
