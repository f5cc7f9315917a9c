// SPDX-License-Identifier: MIT OR Apache-2.0
//! A controller that misbehaves on purpose, for testing hosts: a [`Script`] of rules says how and when.
//!
//! `docs/src/target.md` has the grammar. A controller is given a script with [`Controller::set_faults`](crate::Controller::set_faults)
//! and behaves again after [`Controller::clear_faults`](crate::Controller::clear_faults).
//!
//! | module | what |
//! |---|---|
//! | `rule` | a rule: what to do, and when |
//! | `words`, `parse` | the text of a script |
//! | `limit` | limits that can be misstated |
//! | `random` | numbers that are the same for the same seed |
//! | `engine` | which rules a command, an Identify or a change of CC.EN meets |
//! | `effect` | what is to happen to a command, and what becomes of its completion queue entry |
//! | `waiting` | commands and completions that are held back |
//! | `act` | the controller doing all that |

mod act;
mod effect;
mod engine;
mod limit;
mod parse;
mod random;
mod rule;
mod waiting;
mod words;

pub(crate) use act::Faults;
pub use engine::RuleReport;
pub use parse::{Script, ScriptError};
