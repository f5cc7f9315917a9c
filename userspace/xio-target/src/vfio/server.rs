// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients, one after the other.

use super::device::Device;
use super::poller::Handle;
use super::socket::{wait, Connection, Ended};
use crate::store::{MemStore, Store};
use crate::Config;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A controller that vfio-user clients can plug in.
pub struct Server {
    device: Device,
}

impl Server {
    /// A controller that was just powered on, with empty namespaces in memory.
    pub fn new(config: Config) -> io::Result<Self> {
        let stores = config.namespaces.iter().map(|ns| Arc::new(MemStore::new(ns)) as Arc<dyn Store>);
        let stores = stores.collect();
        Self::with_stores(config, stores)
    }

    /// A controller that was just powered on, with a store for each namespace.
    pub fn with_stores(config: Config, stores: Vec<Arc<dyn Store>>) -> io::Result<Self> {
        Ok(Self { device: Device::new(config, stores)? })
    }

    /// The running controller, for an administrator.
    pub fn handle(&self) -> Handle {
        self.device.administrator()
    }

    /// Serves clients until `stop` can be read. It is an error if the controller ends before.
    pub fn run(&mut self, listener: &Listener, stop: BorrowedFd<'_>) -> io::Result<()> {
        let end = self.device.end()?;
        while wait(listener.socket.as_fd(), [stop, end.as_fd()])? {
            let (stream, _) = listener.socket.accept()?;
            self.serve(stream, stop)?;
        }
        if self.device.has_ended() {
            return Err(io::Error::other("the controller's thread has ended"));
        }
        Ok(())
    }

    /// Serves one client until it leaves, `stop` can be read, or the controller has ended. The controller is then as after power on, but for
    /// what is stored.
    pub fn serve(&mut self, stream: UnixStream, stop: BorrowedFd<'_>) -> io::Result<()> {
        log::info!("client connected");
        let end = self.device.end()?;
        let mut connection = Connection::new(stream, [stop, end.as_fd()])?;
        self.device.connect(connection.sender().clone());
        let ended = loop {
            if let Err(ended) = self.serve_message(&mut connection) {
                break ended;
            }
        };
        match ended {
            Ended::Closed | Ended::Stopped => log::info!("client disconnected"),
            Ended::Failed(error) => log::warn!("client disconnected: {error}"),
        }
        self.device.power_cycle();
        Ok(())
    }

    fn serve_message(&mut self, connection: &mut Connection<'_>) -> Result<(), Ended> {
        let message = connection.receive()?;
        let header = message.header;
        if !header.is_command() {
            self.device.answered(message);
            return Ok(());
        }
        let reply = self.device.handle(message);
        if let Err(errno) = &reply {
            log::warn!("command {} refused: {errno}", header.command);
        }
        if !header.wants_reply() {
            return Ok(());
        }
        match reply {
            Ok(reply) => {
                let fd = reply.file.and_then(|bar| self.device.file(bar));
                connection.sender().send(&header.reply(reply.payload.len()), &reply.payload, fd)?;
            }
            Err(errno) => connection.sender().send(&header.error(errno), &[], None)?,
        }
        Ok(())
    }
}

/// A socket in the file system; removed when this is dropped.
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`, where nobody else does.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
        if is_socket {
            // Left behind by a program that was killed, unless somebody answers.
            if UnixStream::connect(path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            fs::remove_file(path)?;
        }
        Ok(Self { socket: UnixListener::bind(path)?, path: path.to_path_buf() })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            log::warn!("{}: {error}", self.path.display());
        }
    }
}
