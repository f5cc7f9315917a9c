// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function that messages talk to.

use super::bar::{Bar, Layout};
use super::dma::DmaTable;
use super::interrupts::Vectors;
use super::pci::{self, ConfigSpace};
use super::poller::Poller;
use super::socket::Message;
use super::wire::{self, command, parse};
use crate::{Config, Controller, Host};
use nix::errno::Errno;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};

/// What a message is answered.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) payload: Vec<u8>,
    /// With the file of BAR 0.
    pub(super) file: bool,
}

impl Reply {
    fn new(data: &(impl IntoBytes + Immutable)) -> Self {
        Self { payload: data.as_bytes().to_vec(), file: false }
    }

    fn and(mut self, more: &[u8]) -> Self {
        self.payload.extend_from_slice(more);
        self
    }
}

/// The controller as a PCI function.
pub(super) struct Device {
    // Dropped first, and with it the thread that uses the rest.
    poller: Poller,
    dma: Arc<DmaTable>,
    vectors: Arc<Vectors>,
    bar: Arc<Bar>,
    space: ConfigSpace,
    /// The client has said which version it speaks.
    negotiated: bool,
}

impl Device {
    pub(super) fn new(config: Config) -> io::Result<Self> {
        config.check().map_err(io::Error::other)?;
        let bar = Arc::new(Bar::new(&config)?);
        let (dma, vectors) = (Arc::new(DmaTable::default()), Arc::new(Vectors::new(config.vectors())));
        let space = ConfigSpace::new(bar.layout, config.vectors());
        let host = Host { memory: dma.clone(), doorbells: bar.clone(), interrupts: vectors.clone() };
        let controller = Controller::new(config, host).map_err(io::Error::other)?;
        Ok(Self { poller: Poller::start(controller)?, dma, vectors, bar, space, negotiated: false })
    }

    /// File of BAR 0.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.bar.file()
    }

    /// Can be read when the controller's thread has ended.
    pub(super) fn end(&self) -> io::Result<OwnedFd> {
        self.poller.end()
    }

    /// Whether the controller's thread has ended, after which nothing is answered any more.
    pub(super) fn has_ended(&self) -> bool {
        self.poller.has_ended()
    }

    /// As after power on, for the next client. What is stored stays.
    pub(super) fn power_cycle(&mut self) {
        self.reset();
        self.dma.clear();
        self.vectors.disconnect(true);
        self.negotiated = false;
    }

    /// Handles a message.
    pub(super) fn handle(&mut self, message: Message) -> Result<Reply, Errno> {
        let Message { header, payload, fds } = message;
        if header.command == command::VERSION {
            return self.version(&payload);
        }
        if !self.negotiated {
            return Err(Errno::EINVAL);
        }
        match header.command {
            command::DMA_MAP => {
                let (map, _) = parse(&payload)?;
                log::debug!("{map:x?}, {} files", fds.len());
                self.dma.map(&map, one(fds)?).map(|()| Reply::default())
            }
            command::DMA_UNMAP => {
                let (unmap, _) = parse(&payload)?;
                log::debug!("{unmap:x?}");
                self.dma.unmap(&unmap).map(|()| Reply::new(&unmap))
            }
            command::DEVICE_GET_INFO => device_info(&payload),
            command::DEVICE_GET_REGION_INFO => self.region_info(&payload),
            command::DEVICE_GET_IRQ_INFO => self.irq_info(&payload),
            command::DEVICE_SET_IRQS => self.set_irqs(&payload, fds),
            command::REGION_READ => self.region_read(&payload),
            command::REGION_WRITE => self.region_write(&payload),
            command::DEVICE_RESET => {
                self.reset();
                Ok(Reply::default())
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// VERSION: version 0.0 of the protocol, which all clients speak, and the capabilities in use.
    fn version(&mut self, payload: &[u8]) -> Result<Reply, Errno> {
        let (version, text): (wire::Version, _) = parse(payload)?;
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        if version.major != 0 || self.negotiated {
            return Err(Errno::EINVAL);
        }
        if !text.is_empty() {
            let theirs: serde_json::Value = serde_json::from_slice(text).map_err(|_| Errno::EINVAL)?;
            log::info!("client speaks version 0.{}, {theirs}", version.minor);
        }
        self.negotiated = true;
        let ours = serde_json::json!({
            "capabilities": { "max_msg_fds": wire::MAX_FDS, "max_data_xfer_size": wire::MAX_DATA }
        });
        Ok(Reply::new(&wire::Version::default()).and(ours.to_string().as_bytes()).and(&[0]))
    }

    /// As after power on, but for what the client has set up: its memory and interrupts.
    fn reset(&mut self) {
        log::info!("reset");
        self.poller.controller().reset();
        self.dma.enable(false);
        self.space.reset();
    }

    /// DEVICE_GET_REGION_INFO. A client first asks with room for the structure alone, learns from the reply how much
    /// room the capability takes, and asks again.
    fn region_info(&self, payload: &[u8]) -> Result<Reply, Errno> {
        let (asked, _): (wire::RegionInfo, _) = parse(payload)?;
        let argsz = size_of::<wire::RegionInfo>() as u32;
        let (flags, size) = match asked.index {
            wire::REGION_BAR0 => (wire::RegionInfo::READ | wire::RegionInfo::WRITE, self.bar.layout.len),
            wire::REGION_CONFIG => (wire::RegionInfo::READ | wire::RegionInfo::WRITE, pci::SIZE),
            index if index < wire::REGIONS => (0, 0),
            _ => return Err(Errno::EINVAL),
        };
        let mut info = wire::RegionInfo {
            argsz,
            flags,
            index: asked.index,
            cap_offset: 0,
            size: size as u64,
            offset: 0,
        };
        if asked.index != wire::REGION_BAR0 {
            return Ok(Reply::new(&info));
        }
        info.flags |= wire::RegionInfo::MMAP | wire::RegionInfo::CAPS;
        info.cap_offset = argsz;
        info.argsz = argsz + size_of::<wire::SparseArea>() as u32;
        if asked.argsz < info.argsz {
            return Ok(Reply::new(&info));
        }
        let area = wire::SparseArea {
            id: wire::SparseArea::ID,
            version: 1,
            areas: 1,
            offset: Layout::DOORBELLS as u64,
            size: self.bar.layout.doorbells as u64,
            ..Default::default()
        };
        Ok(Reply { file: true, ..Reply::new(&info).and(area.as_bytes()) })
    }

    fn irq_info(&self, payload: &[u8]) -> Result<Reply, Errno> {
        let (asked, _): (wire::IrqInfo, _) = parse(payload)?;
        let (flags, count) = match asked.index {
            wire::IRQ_MSIX => (wire::IrqInfo::EVENTFD | wire::IrqInfo::NORESIZE, self.vectors.count()),
            wire::IRQ_ERROR | wire::IRQ_REQUEST => (wire::IrqInfo::EVENTFD | wire::IrqInfo::NORESIZE, 1),
            index if index < wire::IRQS => (0, 0),
            _ => return Err(Errno::EINVAL),
        };
        Ok(Reply::new(&wire::IrqInfo { argsz: 16, flags, index: asked.index, count }))
    }

    fn set_irqs(&self, payload: &[u8], fds: Vec<OwnedFd>) -> Result<Reply, Errno> {
        let (set, _): (wire::SetIrqs, _) = parse(payload)?;
        log::debug!("{set:x?}, {} files", fds.len());
        let count = match set.index {
            wire::IRQ_MSIX => self.vectors.count(),
            wire::IRQ_ERROR | wire::IRQ_REQUEST => 1,
            _ => return Err(Errno::EINVAL),
        };
        let end = set.start.checked_add(set.count).filter(|end| *end <= count);
        let vectors = set.start..end.ok_or(Errno::EINVAL)?;
        if set.flags & wire::SetIrqs::ACTION_TRIGGER == 0 || fds.len() > vectors.len() {
            return Err(Errno::EINVAL);
        }
        match set.flags & !wire::SetIrqs::ACTION_TRIGGER {
            // These two are never raised: the host learns of fatal errors from CSTS.
            _ if set.index != wire::IRQ_MSIX => {}
            wire::SetIrqs::DATA_NONE if set.count == 0 => self.vectors.disconnect(false),
            wire::SetIrqs::DATA_NONE => {
                vectors.for_each(|vector| crate::host::Interrupts::raise(&*self.vectors, vector as u16))
            }
            wire::SetIrqs::DATA_EVENTFD => {
                let mut fds = fds.into_iter();
                for vector in vectors {
                    self.vectors.connect(vector, fds.next())?;
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(Reply::default())
    }

    fn region_read(&self, payload: &[u8]) -> Result<Reply, Errno> {
        let (access, _): (wire::RegionAccess, _) = parse(payload)?;
        let (offset, len) = self.check(&access)?;
        let mut data = vec![0; len];
        match access.region {
            wire::REGION_CONFIG => self.space.read(offset, &mut data),
            _ if offset + len <= Layout::DOORBELLS => {
                self.poller.controller().read_register(offset, &mut data)
            }
            _ if self.bar.layout.is_doorbell(offset, len) => self.bar.read(offset, &mut data),
            // The client keeps the MSI-X table, and nothing is ever pending here.
            _ => {}
        }
        Ok(Reply::new(&access).and(&data))
    }

    fn region_write(&mut self, payload: &[u8]) -> Result<Reply, Errno> {
        let (access, data): (wire::RegionAccess, _) = parse(payload)?;
        let (offset, len) = self.check(&access)?;
        let data = data.get(..len).ok_or(Errno::EINVAL)?;
        match access.region {
            wire::REGION_CONFIG if self.space.write(offset, data) => self.reset(),
            wire::REGION_CONFIG => self.dma.enable(self.space.is_bus_master()),
            _ if offset + len <= Layout::DOORBELLS => self.poller.controller().write_register(offset, data),
            _ if self.bar.layout.is_doorbell(offset, len) => self.bar.write(offset, data),
            _ => {}
        }
        self.poller.wake();
        Ok(Reply::new(&access))
    }

    /// Place and length of an access that is inside its region.
    fn check(&self, access: &wire::RegionAccess) -> Result<(usize, usize), Errno> {
        let size = match access.region {
            wire::REGION_BAR0 => self.bar.layout.len,
            wire::REGION_CONFIG => pci::SIZE,
            _ => return Err(Errno::EINVAL),
        };
        let (offset, len) =
            (usize::try_from(access.offset).map_err(|_| Errno::EINVAL)?, access.count as usize);
        let end = offset.checked_add(len).filter(|end| *end <= size && len <= wire::MAX_DATA);
        end.map(|_| (offset, len)).ok_or(Errno::EINVAL)
    }
}

fn device_info(payload: &[u8]) -> Result<Reply, Errno> {
    let (_, _): (wire::DeviceInfo, _) = parse(payload)?;
    let flags = wire::DeviceInfo::PCI | wire::DeviceInfo::RESET;
    Ok(Reply::new(&wire::DeviceInfo { argsz: 16, flags, regions: wire::REGIONS, irqs: wire::IRQS }))
}

/// At most one file.
fn one(fds: Vec<OwnedFd>) -> Result<Option<OwnedFd>, Errno> {
    let mut fds = fds.into_iter();
    match (fds.next(), fds.next()) {
        (fd, None) => Ok(fd),
        _ => Err(Errno::EINVAL),
    }
}
