//! Small disks, for tests of what a full one does.

use std::path::PathBuf;
use std::process::Command;

/// A file system of our own.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Mount {
    /// `None` if nobody may.
    pub(crate) fn new(path: PathBuf, options: &str) -> Option<Mount> {
        std::fs::create_dir_all(&path).expect("a directory");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).output();
        let mounted = mount.is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("may not mount: what a full disk does is left to the other tests of it");
        }
        mounted.then_some(Mount(path))
    }

    pub(crate) fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(Command::new("mount").args(["-o", &options]).arg(&self.0).status().expect("mount").success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
