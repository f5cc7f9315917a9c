// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a virtual machine consists of, and QEMU's arguments for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The IOMMU that the guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Iommu {
    /// None: devices reach all memory.
    #[default]
    None,
    /// Intel VT-d.
    Intel,
    /// AMD-Vi.
    Amd,
    /// virtio-iommu; the guest loads its driver before anything else.
    Virtio,
}

/// Backing of the NVMe disk, in the run folder.
pub(crate) const DISK_FILE: &str = "disk.img";
/// Its size in bytes.
pub(crate) const DISK_LEN: u64 = 64 << 20;

/// Memory of the fake GPU in MiB.
pub const FAKE_GPU_MIB: u32 = 64;

/// How many times longer things may take with the debug kernel.
const SLOWER: u32 = 6;

/// A virtual machine, described; made with [`Machine::new`] and the methods below.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) iommu: Iommu,
    pub(crate) cmdline: Vec<String>,
    pub(crate) controllers: Vec<Vec<String>>,
    pub(crate) nvme_disk: bool,
    pub(crate) ram_mib: u32,
    pub(crate) cpus: u32,
    pub(crate) timeout: Duration,
    pub(crate) qemu: Vec<String>,
    pub(crate) files: Vec<(PathBuf, String)>,
    pub(crate) kernel_image: Option<String>,
    pub(crate) spare_controllers: usize,
    pub(crate) one_slot: bool,
    pub(crate) tools: bool,
    pub(crate) fake_gpu: bool,
    pub(crate) peers: bool,
    pub(crate) private: bool,
    pub(crate) root_port: bool,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// One GiB of memory, two processors, no IOMMU, no device, a deadline of two minutes.
    #[must_use]
    pub fn new() -> Self {
        Self {
            iommu: Iommu::None,
            cmdline: Vec::new(),
            controllers: Vec::new(),
            nvme_disk: false,
            ram_mib: 1024,
            cpus: 2,
            timeout: Duration::from_secs(120),
            qemu: Vec::new(),
            files: Vec::new(),
            kernel_image: None,
            spare_controllers: 0,
            one_slot: false,
            tools: false,
            fake_gpu: false,
            peers: true,
            private: false,
            root_port: false,
        }
    }

    /// The kind of IOMMU.
    #[must_use]
    pub fn iommu(mut self, iommu: Iommu) -> Self {
        self.iommu = iommu;
        self
    }

    /// More words for the kernel's command line, such as `iommu=pt`.
    #[must_use]
    pub fn cmdline(mut self, words: &str) -> Self {
        self.cmdline.push(words.to_owned());
        self
    }

    /// One more software controller: `xio-target serve` with these options.
    #[must_use]
    pub fn controller(mut self, options: &[&str]) -> Self {
        self.controllers.push(options.iter().map(|&option| option.to_owned()).collect());
        self
    }

    /// One more software controller that is running but not plugged in; the guest asks for it with the host
    /// action `qmp` and the socket's name `@SOCKET<N>@`, N counting all controllers from 0.
    #[must_use]
    pub fn spare_controller(mut self, options: &[&str]) -> Self {
        self.spare_controllers += 1;
        self.controller(options)
    }

    /// Makes the controllers functions of one device, and so one IOMMU group.
    #[must_use]
    pub fn one_slot(mut self) -> Self {
        self.one_slot = true;
        self
    }

    /// Memory that QEMU does not share, so that controllers have to ask for it.
    #[must_use]
    pub fn private_memory(mut self) -> Self {
        self.private = true;
        self
    }

    /// QEMU's own NVMe disk of 64 MiB (an ordinary block controller, not Key-Value).
    #[must_use]
    pub fn nvme_disk(mut self) -> Self {
        self.nvme_disk = true;
        self
    }

    /// Puts each controller behind a root port `rpN`, where it can be unplugged, and errors of the bus be told.
    #[must_use]
    pub fn root_ports(mut self) -> Self {
        self.root_port = true;
        self
    }

    /// Guest memory in MiB.
    #[must_use]
    pub fn ram_mib(mut self, mib: u32) -> Self {
        self.ram_mib = mib;
        self
    }

    /// The number of processors.
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// The deadline in seconds, after which the machine is killed and the case has failed.
    #[must_use]
    pub fn timeout(mut self, seconds: u64) -> Self {
        self.timeout = Duration::from_secs(seconds);
        self
    }

    /// For a kernel with its own checkers: more memory and time, and the guest's waits are longer, too.
    #[must_use]
    pub fn slow(mut self) -> Self {
        self.ram_mib = self.ram_mib.max(1024) * 2;
        self.timeout *= SLOWER;
        // Before Linux knows that it has five levels of page tables, KASAN takes an interrupt for a bad access; and of several
        // reports it gives the first only.
        self.cmdline(&format!("xio.slower={SLOWER} no5lvl kasan_multi_shot"))
    }

    /// More QEMU arguments.
    #[must_use]
    pub fn qemu(mut self, arguments: &[&str]) -> Self {
        self.qemu.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Puts a host file (relative to the checkout) at `guest` in the initial RAM disk.
    #[must_use]
    pub fn file(mut self, host: impl Into<PathBuf>, guest: &str) -> Self {
        self.files.push((host.into(), guest.to_owned()));
        self
    }

    /// Puts the kernel's own image at `guest` in the initial RAM disk, for want of a large file.
    #[must_use]
    pub fn kernel_image(mut self, guest: &str) -> Self {
        self.kernel_image = Some(guest.to_owned());
        self
    }

    /// The programs of others that `scripts/interop-tools` has put into the cache, if it has.
    #[must_use]
    pub fn tools(mut self) -> Self {
        self.tools = true;
        self
    }

    /// A device whose memory stands for that of a GPU ([`FAKE_GPU_MIB`]), and `fakegpu.ko`, its driver, in the
    /// initial RAM disk. The guest lets devices reach each other's memory.
    #[must_use]
    pub fn fake_gpu(mut self) -> Self {
        self.fake_gpu = true;
        self
    }

    /// The fake GPU in a machine whose bridge Linux does not trust to pass accesses from device to device.
    #[must_use]
    pub fn no_peers(mut self) -> Self {
        self.peers = false;
        self
    }

    /// The controllers' options, in the order in which they are numbered.
    #[must_use]
    pub fn controllers(&self) -> &[Vec<String>] {
        &self.controllers
    }

    fn iommu_arguments(&self) -> (&'static [&'static str], &'static str) {
        match self.iommu {
            Iommu::None => (&[], ""),
            // Without caching mode, QEMU refuses to put a vfio-user device behind it.
            Iommu::Intel => (&["-device", "intel-iommu,caching-mode=on"], "intel_iommu=on"),
            Iommu::Amd => (&["-device", "amd-iommu,dma-remap=on"], ""),
            Iommu::Virtio => (&["-device", "virtio-iommu-pci,addr=02.0"], "xio.modules=virtio-iommu"),
        }
    }

    /// The processor. Linux trusts a bridge to pass accesses from device to device if the processor is an AMD Zen.
    fn processor(&self) -> &'static str {
        if self.fake_gpu && self.peers {
            "max,vendor=AuthenticAMD,family=28"
        } else {
            "max"
        }
    }

    /// QEMU's arguments, less accelerator, kernel and serial lines. `dir` holds the sockets `s0`, `s1`, ….
    #[must_use]
    pub(crate) fn qemu_arguments(&self, dir: &Path) -> Vec<String> {
        let ram = self.ram_mib;
        let (backend, share) = if self.private { ("ram", "off") } else { ("memfd", "on") };
        let mut arguments = words(&format!(
            "-machine q35,memory-backend=mem -object memory-backend-{backend},id=mem,size={ram}M,share={share} -m {ram}M \
             -smp {} -cpu {} -nodefaults -display none -no-reboot",
            self.cpus,
            self.processor()
        ));
        arguments.extend(self.iommu_arguments().0.iter().map(|&word| word.to_owned()));
        if self.nvme_disk {
            let disk = dir.join(DISK_FILE);
            arguments.push("-blockdev".to_owned());
            arguments.push(format!("driver=file,node-name=disk,filename={}", disk.display()));
            arguments.extend(words("-device nvme,serial=ordinary,drive=disk"));
        }
        if self.fake_gpu {
            // Shared like the machine's own memory, so that controllers get it, too.
            arguments.extend(words(&format!(
                "-object memory-backend-memfd,id=vram,size={FAKE_GPU_MIB}M,share=on -device ivshmem-plain,memdev=vram"
            )));
        }
        for index in 0..self.controllers.len() - self.spare_controllers {
            let socket = dir.join(format!("s{index}"));
            let place = if self.one_slot {
                format!(r#""addr":"0x8.{index}","multifunction":true,"#)
            } else if self.root_port {
                let port = format!("id=rp{index},chassis={index},slot={index},x-speed=2_5,x-width=1");
                arguments.extend(["-device".to_owned(), format!("pcie-root-port,{port}")]);
                format!(r#""bus":"rp{index}","#)
            } else {
                String::new()
            };
            // The default message timeout of 5 s is soon over on a busy host, and then the device is lost.
            arguments.push("-device".to_owned());
            arguments.push(format!(
                r#"{{"driver":"vfio-user-pci",{place}"id":"vfu{index}","x-msg-timeout":60000,"socket":{{"type":"unix","path":"{}"}}}}"#,
                socket.display()
            ));
        }
        arguments.extend(self.qemu.iter().cloned());
        arguments
    }

    /// The kernel's command line for a guest group (or another `xio.…` word).
    #[must_use]
    pub(crate) fn kernel_cmdline(&self, word: &str) -> String {
        let mut line = String::from("console=ttyS0 panic=-1 no_timer_check quiet loglevel=4 log_buf_len=4M");
        for extra in
            [self.iommu_arguments().1, word].into_iter().chain(self.cmdline.iter().map(String::as_str))
        {
            if !extra.is_empty() {
                line.push(' ');
                line.push_str(extra);
            }
        }
        line
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_get_one_socket_each_and_spares_none() {
        let machine = Machine::new().controller(&[]).controller(&[]).spare_controller(&[]);
        let line = machine.qemu_arguments(Path::new("/run")).join(" ");
        assert!(line.contains("/run/s0") && line.contains("/run/s1") && !line.contains("/run/s2"), "{line}");
    }

    #[test]
    fn peers_need_a_processor_that_is_trusted() {
        let line = |machine: Machine| machine.qemu_arguments(Path::new("/")).join(" ");
        assert!(line(Machine::new()).contains("-cpu max "), "no need without a peer");
        let gpu = line(Machine::new().fake_gpu());
        assert!(gpu.contains("family=28") && gpu.contains("ivshmem-plain"), "{gpu}");
        assert!(line(Machine::new().fake_gpu().no_peers()).contains("-cpu max "));
    }

    #[test]
    fn the_iommu_shows_in_device_and_command_line() {
        let machine = Machine::new().iommu(Iommu::Intel).cmdline("iommu=pt");
        assert!(machine.qemu_arguments(Path::new("/")).contains(&"intel-iommu,caching-mode=on".to_owned()));
        let line = machine.kernel_cmdline("xio.test=smoke");
        assert!(line.ends_with("intel_iommu=on xio.test=smoke iommu=pt"), "{line}");
    }
}
