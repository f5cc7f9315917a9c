// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function that messages talk to.

use super::bar::{Bar, Layout};
use super::cmb::CmbMemory;
use super::dma::DmaTable;
use super::interrupts::Vectors;
use super::pci::{self, ConfigSpace};
use super::poller::{Handle, Poller};
use super::socket::{Message, Sender};
use super::wire::{self, command, parse};
use crate::host::HostMemory;
use crate::store::{MemStore, Store};
use crate::{Config, Controller, Host, NamespaceConfig};
use nix::errno::Errno;
use nvme_kv::regs::offset as at;
use nvme_kv::PAGE_SIZE;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};

/// Bytes of the registers below the doorbells, as far as there are any.
const REGISTERS: usize = 0x80;

/// What a message is answered.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) payload: Vec<u8>,
    /// With the file of this BAR.
    pub(super) file: Option<u32>,
}

impl Reply {
    fn new(data: &(impl IntoBytes + Immutable)) -> Self {
        Self { payload: data.as_bytes().to_vec(), file: None }
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
    cmb: Option<Arc<CmbMemory>>,
    space: ConfigSpace,
    /// Index of the interrupts that the function has.
    irq: u32,
    /// The registers as they were when the client last accessed them.
    registers: [u8; REGISTERS],
    /// The client has said which version it speaks.
    negotiated: bool,
}

impl Device {
    pub(super) fn new(config: Config, stores: Vec<Arc<dyn Store>>) -> io::Result<Self> {
        config.check().map_err(io::Error::other)?;
        if stores.len() != config.namespaces.len() {
            return Err(io::Error::other("there must be one store for each namespace"));
        }
        let bar = Arc::new(Bar::new(&config)?);
        let (dma, vectors) = (Arc::new(DmaTable::default()), Arc::new(Vectors::new(config.vectors())));
        let cmb = (config.cmb > 0).then(|| CmbMemory::new(config.cmb).map(Arc::new)).transpose()?;
        let cmb_len = cmb.as_ref().map_or(0, |cmb| cmb.bar_len() as u64);
        let space = ConfigSpace::new(bar.layout, cmb_len, config.vectors(), config.msi);
        let irq = if config.msi { wire::IRQ_MSI } else { wire::IRQ_MSIX };
        let host = Host { memory: dma.clone(), doorbells: bar.clone(), interrupts: vectors.clone() };
        let mut stores = stores.into_iter();
        let open = |_, namespace: &NamespaceConfig| {
            stores.next().unwrap_or_else(|| Arc::new(MemStore::new(namespace)))
        };
        let mut controller = Controller::with_stores(config, host, open).map_err(io::Error::other)?;
        if let Some(cmb) = &cmb {
            controller = controller.with_cmb(cmb.clone());
        }
        let (poller, registers) = (Poller::start(controller)?, [0; REGISTERS]);
        Ok(Self { poller, dma, vectors, bar, cmb, space, irq, registers, negotiated: false })
    }

    /// A client has come.
    pub(super) fn connect(&self, client: Sender, stream: UnixStream) {
        self.dma.remote().connect(client);
        self.poller.set_client(Some(stream));
    }

    /// Can be read when the controller has vanished since this was asked last.
    pub(super) fn vanished(&self) -> BorrowedFd<'_> {
        self.poller.vanished()
    }

    /// Whether the controller has vanished.
    pub(super) fn is_absent(&self) -> bool {
        self.poller.is_absent()
    }

    /// Takes a reply of the client.
    pub(super) fn answered(&self, message: Message) {
        self.dma.remote().answered(message);
    }

    /// For an administrator.
    pub(super) fn administrator(&self) -> Handle {
        self.poller.handle()
    }

    /// File of a BAR.
    pub(super) fn file(&self, bar: u32) -> Option<BorrowedFd<'_>> {
        match bar {
            wire::REGION_BAR0 => Some(self.bar.file()),
            wire::REGION_BAR2 => self.cmb.as_ref().map(|cmb| cmb.file()),
            _ => None,
        }
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
        self.dma.remote().disconnect();
        self.poller.set_client(None);
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
            if let Some(max) = theirs["capabilities"]["max_data_xfer_size"].as_u64() {
                // With less, a value would take more messages than anybody waits for.
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                self.dma.remote().limit(Some(max).filter(|max| *max >= PAGE_SIZE).ok_or(Errno::EINVAL)?);
            }
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
        let interruption = self.dma.remote().interrupt();
        self.poller.controller().reset();
        drop(interruption);
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
            wire::REGION_BAR2 if self.cmb_len() > 0 => {
                (wire::RegionInfo::READ | wire::RegionInfo::WRITE, self.cmb_len())
            }
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
        // What of it the client may map.
        let (offset, len) = match asked.index {
            wire::REGION_BAR0 => (Layout::DOORBELLS, self.bar.layout.doorbells),
            // The whole, but some clients map nothing without an area.
            wire::REGION_BAR2 if size > 0 => (0, size),
            _ => return Ok(Reply::new(&info)),
        };
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
            offset: offset as u64,
            size: len as u64,
            ..Default::default()
        };
        Ok(Reply { file: Some(asked.index), ..Reply::new(&info).and(area.as_bytes()) })
    }

    fn irq_info(&self, payload: &[u8]) -> Result<Reply, Errno> {
        let (asked, _): (wire::IrqInfo, _) = parse(payload)?;
        let (flags, count) = match asked.index {
            index if index == self.irq => {
                (wire::IrqInfo::EVENTFD | wire::IrqInfo::NORESIZE, self.vectors.count())
            }
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
            index if index == self.irq => self.vectors.count(),
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
            _ if set.index != self.irq => {}
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

    fn region_read(&mut self, payload: &[u8]) -> Result<Reply, Errno> {
        let (access, _): (wire::RegionAccess, _) = parse(payload)?;
        let (offset, len) = self.check(&access)?;
        let mut data = vec![0; len];
        match access.region {
            wire::REGION_CONFIG => self.space.read(offset, &mut data),
            wire::REGION_BAR2 => self.read_cmb(offset, &mut data),
            _ if offset + len <= Layout::DOORBELLS => self.read_registers(offset, &mut data),
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
            wire::REGION_BAR2 => self.write_cmb(offset, data),
            _ if offset + len <= Layout::DOORBELLS => self.write_registers(offset, data),
            _ if self.bar.layout.is_doorbell(offset, len) => self.bar.write(offset, data),
            _ => {}
        }
        self.poller.wake();
        Ok(Reply::new(&access))
    }

    /// Reads registers; while the controller waits for the client, as they were. It writes most of them itself, and what
    /// it finds changed by the controller (in CSTS) it finds the next time.
    fn read_registers(&mut self, offset: usize, to: &mut [u8]) {
        if let Some(controller) = self.poller.controller_unless(|| self.dma.remote().is_waiting()) {
            controller.read_register(0, &mut self.registers);
        }
        for (to, at) in to.iter_mut().zip(offset..) {
            *to = self.registers.get(at).copied().unwrap_or(0);
        }
    }

    fn write_registers(&mut self, offset: usize, from: &[u8]) {
        let touches = |at: usize| offset < at + 8 && at < offset + from.len();
        // These end or redirect what is under way, so it need not come to its end. The others do nothing while
        // anything is.
        let changes = touches(at::CC) || touches(at::CMBMSC);
        let interruption = changes.then(|| self.dma.remote().interrupt());
        let controller = self.poller.controller_unless(|| !changes && self.dma.remote().is_waiting());
        if let Some(mut controller) = controller {
            controller.write_register(offset, from);
            controller.read_register(0, &mut self.registers);
        }
        drop(interruption);
    }

    /// Bytes of BAR 2.
    fn cmb_len(&self) -> usize {
        self.cmb.as_ref().map_or(0, |cmb| cmb.bar_len())
    }

    fn read_cmb(&self, offset: usize, to: &mut [u8]) {
        // What is behind the end of the buffer reads as zeros.
        if let Some(Err(fault)) = self.cmb.as_ref().map(|cmb| cmb.read(offset as u64, to)) {
            log::debug!("{fault}");
        }
    }

    fn write_cmb(&self, offset: usize, from: &[u8]) {
        if let Some(Err(fault)) = self.cmb.as_ref().map(|cmb| cmb.write(offset as u64, from)) {
            log::debug!("{fault}");
        }
    }

    /// Place and length of an access that is inside its region.
    fn check(&self, access: &wire::RegionAccess) -> Result<(usize, usize), Errno> {
        let size = match access.region {
            wire::REGION_BAR0 => self.bar.layout.len,
            wire::REGION_CONFIG => pci::SIZE,
            wire::REGION_BAR2 => self.cmb_len(),
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
