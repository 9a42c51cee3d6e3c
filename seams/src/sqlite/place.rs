//! Where the file lies: what is refused before `SQLite` opens it, and who may read what is made.
//!
//! `SQLite` finds the log and the locks of a file beside the name by which it was opened, and trusts
//! that everybody finds the same. Whatever breaks that gives two processes two stores.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::sys::statfs;

use super::log_files::{LOG, beside};

/// The mounts that this process sees.
const MOUNTS: &str = "/proc/self/mountinfo";

/// File systems that several machines may share, by the numbers that Linux has for them: `SQLite`
/// trusts their locks no further than one machine, and its write-ahead log needs memory that all
/// share. FUSE (0x65735546) is not among them, because it says nothing of what is behind it.
const SHARED_FILE_SYSTEMS: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    // The first is the old `smbfs`; `cifs` has two numbers of its own, by version.
    (0x517B, "SMB"),
    (0xFF53_4D42, "SMB"),
    (0xFE53_4D42, "SMB"),
    (0x0102_1997, "9p"),
    (0x00C3_6400, "Ceph"),
    // The two implementations have a number each.
    (0x5346_414F, "AFS"),
    (0x6B41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0BD0_0BD0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
];

fn make_folder(path: &Path) -> Result<(), String> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let Some(folder) = folder.filter(|folder| !folder.exists()) else {
        return Ok(());
    };
    let missing = folder.ancestors();
    let missing: Vec<_> = missing
        .take_while(|above| !above.as_os_str().is_empty() && !above.exists())
        .collect();
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .and_then(|()| missing.into_iter().try_for_each(keep_name))
        .map_err(|error| format!("its folder cannot be made: {error}"))
}

/// Makes it durable that a new folder has its name: `SQLite` sees to the folder that the file is in, and
/// to none above it.
fn keep_name(folder: &Path) -> io::Result<()> {
    let above = folder
        .parent()
        .filter(|above| !above.as_os_str().is_empty());
    File::open(above.unwrap_or(Path::new(".")))?.sync_all()
}

/// Makes the file and its folder if they are not there, and refuses what keys cannot be trusted to.
pub(super) fn prepare(path: &Path) -> Result<(), String> {
    make_folder(path)?;
    // Asked before the file is: whoever makes a store fills the file first and its log afterwards.
    let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let log = beside(&file, LOG);
    let has_log = fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    let length = match fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err("it is not a regular file".to_owned()),
        Ok(found) if found.nlink() > 1 => return Err(many_names(found.nlink())),
        Ok(found) => Some(found.len()),
        Err(_) => None,
    };
    // SQLite takes an empty file for a new one, and removes what it finds beside it.
    if has_log && length.unwrap_or(0) == 0 {
        return Err(format!(
            "it is empty or gone, but its log `{}` is not, and would be thrown away with every key \
             in it; restore both from a backup, or move the log away to start anew (which forgets \
             every key)",
            log.display()
        ));
    }
    if length.is_none() {
        make_file(path)?;
    }
    // Without `/proc` nobody can tell.
    if is_mount_point(&file, &fs::read(MOUNTS).unwrap_or_default()) {
        return Err(
            "it is mounted by itself, so that whoever has it from elsewhere sees nothing of what is \
             done here; mount its folder instead"
                .to_owned(),
        );
    }
    let system =
        statfs::statfs(path).map_err(|error| format!("its disk cannot be asked: {error}"))?;
    match shared_file_system(system.filesystem_type().0) {
        Some(name) => Err(format!(
            "it is on {name}, which several machines may share and whose locks cannot be trusted; \
             keep it on a local disk"
        )),
        None => Ok(()),
    }
}

/// `SQLite` keeps a log beside each name, so that those who come by two names would neither see nor
/// wait for each other.
fn many_names(many: u64) -> String {
    format!(
        "it has {many} names (hard links), and whoever opens it by another one sees nothing of what \
         is done here; remove the others (`find -samefile` finds them), or make them copies"
    )
}

/// Whether this very path is in a list of mounts: its fifth fields, with blanks and the like escaped.
fn is_mount_point(file: &Path, mounts: &[u8]) -> bool {
    let mut escaped = Vec::new();
    for byte in file.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").into_bytes()),
            _ => escaped.push(*byte),
        }
    }
    let mut lines = mounts.split(|byte| *byte == b'\n');
    lines.any(|line| line.split(|byte| *byte == b' ').nth(4) == Some(&escaped[..]))
}

/// Makes the file here, not by `SQLite`, so that it is never readable by others, not for a moment.
fn make_file(path: &Path) -> Result<(), String> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => match fs::read_link(path) {
            Ok(target) if !path.exists() => Err(format!(
                "it is a link to `{}`, which is not there",
                target.display()
            )),
            // Somebody else made it meanwhile.
            Ok(_) | Err(_) => Ok(()),
        },
        Err(error) => Err(format!("it cannot be made: {error}")),
    }
}

/// The name of a file system that is refused, by its number.
fn shared_file_system(number: impl TryInto<i64>) -> Option<&'static str> {
    // Where the number is a signed word of 32 bits, the larger ones come out negative.
    let number = number.try_into().ok()? & 0xFFFF_FFFF;
    let mut known = SHARED_FILE_SYSTEMS.iter();
    known
        .find(|(kind, _)| *kind == number)
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `cifs` was let through: it does not report the number that is named after SMB. The numbers are
    /// those of Linux's `magic.h` and of the file systems' own headers.
    #[test]
    fn file_systems_that_machines_share_are_known_by_their_numbers() {
        for (number, name) in [
            (0x6969_i64, "NFS"),
            (0x517B, "SMB"),
            (0xFF53_4D42, "SMB"),
            (0xFE53_4D42, "SMB"),
            (0x0102_1997, "9p"),
            (0x00C3_6400, "Ceph"),
            (0x5346_414F, "AFS"),
            (0x6B41_4653, "AFS"),
            (0x7375_7245, "Coda"),
            (0x0BD0_0BD0, "Lustre"),
            (0x0116_1970, "GFS2"),
            (0x7461_636F, "OCFS2"),
        ] {
            assert_eq!(shared_file_system(number), Some(name), "{number:#x}");
        }
        assert_eq!(shared_file_system(-11_317_950_i32), Some("SMB"));
        for (number, name) in [
            (0xEF53_i64, "ext4"),
            (0x5846_5342, "XFS"),
            (0x9123_683E, "btrfs"),
            (0x2FC1_2FC1, "ZFS"),
            (0x0102_1994, "tmpfs"),
            (0x794C_7630, "overlayfs"),
            (0x6573_5546, "FUSE"),
        ] {
            assert_eq!(shared_file_system(number), None, "{name}");
        }
    }

    /// By rule 8.4: a file that was mounted by itself into two containers had a log in each of them, and
    /// both were granted the same key.
    #[test]
    fn a_file_that_is_mounted_by_itself_is_known() {
        let mounts = b"36 35 98:0 / / rw,noatime - ext4 /dev/root rw\n\
            42 36 98:0 /srv/store.db /data/my\\040store.db rw - ext4 /dev/root rw\n";
        for (file, expected) in [
            ("/data/my store.db", true),
            ("/data/my\\040store.db", false),
            ("/data", false),
            ("/srv/store.db", false),
            ("/", true),
        ] {
            assert_eq!(is_mount_point(Path::new(file), mounts), expected, "{file}");
        }
        assert!(!is_mount_point(Path::new("/data/store.db"), b""));
    }
}
