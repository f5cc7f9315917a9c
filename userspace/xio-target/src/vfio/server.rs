// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients, one after the other.

use super::device::Device;
use super::poller::Handle;
use super::socket::{first, pause, Connection, Ended};
use crate::store::{MemStore, Store};
use crate::Config;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Milliseconds between two looks whether a controller that has vanished is back.
const LOOK: u8 = 20;

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

    /// Serves clients until `stop` can be read. It is an error if the controller ends before. While it has vanished nobody
    /// listens.
    pub fn run(&mut self, listener: &mut Listener, stop: BorrowedFd<'_>) -> io::Result<()> {
        let end = self.device.end()?;
        loop {
            // Asked before it is looked at, so that nothing is missed in between.
            let vanished = self.device.vanished();
            if !self.be_there(listener, [stop, end.as_fd()])? {
                break;
            }
            let socket = listener.socket()?;
            match first([stop, end.as_fd(), vanished, socket.as_fd()])? {
                0 | 1 => break,
                2 => continue,
                _ => {}
            }
            let (stream, _) = socket.accept()?;
            self.serve_client(stream, stop, Some(listener))?;
        }
        if self.device.has_ended() {
            return Err(io::Error::other("the controller's thread has ended"));
        }
        Ok(())
    }

    /// Waits for a controller that has vanished. `false` when this program is to stop.
    fn be_there(&self, listener: &mut Listener, stop: [BorrowedFd<'_>; 2]) -> io::Result<bool> {
        if !self.device.is_absent() {
            return Ok(true);
        }
        listener.close()?;
        while self.device.is_absent() {
            if !pause(LOOK.into(), stop)? {
                return Ok(false);
            }
        }
        listener.open()?;
        Ok(true)
    }

    /// Serves one client until it leaves, `stop` can be read, or the controller has ended. The controller is then as after power on, but for
    /// what is stored.
    pub fn serve(&mut self, stream: UnixStream, stop: BorrowedFd<'_>) -> io::Result<()> {
        self.serve_client(stream, stop, None)
    }

    fn serve_client(
        &mut self,
        stream: UnixStream,
        stop: BorrowedFd<'_>,
        listener: Option<&mut Listener>,
    ) -> io::Result<()> {
        log::info!("client connected");
        let end = self.device.end()?;
        let same = stream.try_clone()?;
        let others = listener.as_deref().map(|listener| listener.socket()?.try_clone()).transpose()?;
        let mut connection = Connection::new(stream, [stop, end.as_fd()], others)?;
        self.device.connect(connection.sender().clone(), same);
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
        // Before the client sees the end of the connection, so that it can not come at once.
        match listener {
            Some(listener) if self.device.is_absent() => listener.close(),
            _ => Ok(()),
        }
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
    /// `None` while closed.
    socket: Option<UnixListener>,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`, where nobody else does.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let mut listener = Self { socket: None, path: path.to_path_buf() };
        listener.open()?;
        Ok(listener)
    }

    fn open(&mut self) -> io::Result<()> {
        let is_socket = fs::symlink_metadata(&self.path).is_ok_and(|meta| meta.file_type().is_socket());
        if is_socket {
            // Left behind by a program that was killed, unless somebody answers.
            if UnixStream::connect(&self.path).is_ok() {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            fs::remove_file(&self.path)?;
        }
        self.socket = Some(UnixListener::bind(&self.path)?);
        Ok(())
    }

    /// As if this program were not there.
    fn close(&mut self) -> io::Result<()> {
        match self.socket.take() {
            Some(_) => fs::remove_file(&self.path),
            None => Ok(()),
        }
    }

    fn socket(&self) -> io::Result<&UnixListener> {
        self.socket.as_ref().ok_or_else(|| io::Error::other("the socket is closed"))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            log::warn!("{}: {error}", self.path.display());
        }
    }
}
