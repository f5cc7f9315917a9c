// SPDX-License-Identifier: MIT OR Apache-2.0
//! `xio top`: who has what of controllers, as the module tells in debugfs.

mod model;
mod screen;
mod source;
mod view;

pub use source::Unreadable;

use crate::args::{Format, Global, Top};
use crate::exit::Failure;
use crate::output;
use model::Controller;
use screen::Screen;
use serde::Serialize;
use source::Source;
use std::time::Instant;

/// A look, as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    controllers: &'a [Controller],
}

/// Runs the command.
pub fn run(global: &Global, top: &Top) -> Result<(), Failure> {
    if global.loopback {
        return Err(Unreadable::Loopback.into());
    }
    let devices: Vec<_> = top.controllers.iter().chain(&global.device).cloned().collect();
    let source = Source::new(&devices)?;
    let first = source.read()?;
    if top.once {
        return once(&first, top.output);
    }
    let screen = (top.output == Format::Text).then(Screen::new).transpose()?;
    let (mut before, mut at) = (first, Instant::now());
    loop {
        match &screen {
            Some(screen) => {
                screen.show(&text(&before))?;
                screen.wait(top.interval)?;
            }
            None => {
                output::json_line(&Report { controllers: &before })?;
                std::thread::sleep(top.interval);
            }
        }
        let mut now = source.read()?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        for controller in &mut now {
            if let Some(before) = before.iter().find(|before| before.device == controller.device) {
                controller.compare(before, seconds);
            }
        }
        before = now;
    }
}

fn once(controllers: &[Controller], format: Format) -> Result<(), Failure> {
    if controllers.is_empty() {
        output::message(&format!("xio: {}", xio::Error::NoDevice));
    }
    match format {
        Format::Json => output::json(&Report { controllers }),
        Format::Text => output::text(&view::text(controllers)),
    }
}

/// A look; a blank line separates it from the next where they follow each other.
fn text(controllers: &[Controller]) -> String {
    if controllers.is_empty() {
        return "no controllers\n\n".into();
    }
    view::text(controllers) + "\n"
}
