//! The files of a workspace behind an open directory: that of a sandbox, or a plain directory of the host.

use std::io::Seek;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::lock;
use jail::HostUser;
use policy::EffectivePolicy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::byte_channel::byte_channel;
use super::error::AtPath;
use super::view::WorkspaceView;
use super::{
    ArchiveLimit, ByteRange, ByteStream, DirectoryListing, FileContent, FileStat, FilesError, FilesFuture, OnExisting,
    RemovalDepth, UnpackReport, WorkspaceFiles, archive,
};
use crate::user_thread::run_as_user;

/// The workspace behind an open directory, until `close`.
pub(crate) struct FilesOnDisk {
    root: Mutex<Option<Arc<OwnedFd>>>,
    /// The path of the workspace inside; `/workspace` means it too.
    at: Arc<Path>,
    policy: Arc<EffectivePolicy>,
    /// The owner of new files, if that is not the calling user.
    user: Option<HostUser>,
}

impl FilesOnDisk {
    pub(crate) fn new(root: OwnedFd, at: PathBuf, policy: Arc<EffectivePolicy>, user: Option<HostUser>) -> Self {
        let user = user.filter(|user| user.differs_from_caller());
        Self { root: Mutex::new(Some(Arc::new(root))), at: at.into(), policy, user }
    }

    /// Closes the directory. Every later call fails with [`FilesError::Gone`].
    pub(crate) fn close(&self) {
        lock(&self.root).take();
    }

    fn view(&self) -> Result<WorkspaceView, FilesError> {
        let root = lock(&self.root).clone();
        let (at, policy) = (Arc::clone(&self.at), Arc::clone(&self.policy));
        Ok(WorkspaceView { root: root.ok_or(FilesError::Gone)?, at, policy })
    }

    /// Runs `work` on a thread, as the sandbox user.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&WorkspaceView) -> Result<T, FilesError> + Send + 'static,
    ) -> Result<T, FilesError> {
        let view = self.view()?;
        run_as_user(self.user, move || work(&view)).await.at_path(Path::new(""))?
    }

    async fn open(&self, path: &Path, range: ByteRange) -> Result<FileContent, FilesError> {
        let path = path.to_owned();
        let (mut file, stat) = self.run(move |view| view.open(&path)).await?;
        file.seek(std::io::SeekFrom::Start(range.offset)).at_path(&stat.path)?;
        let length = stat.size.saturating_sub(range.offset).min(range.limit);
        let bytes = Box::new(tokio::fs::File::from_std(file).take(length));
        Ok(FileContent { stat, length, bytes })
    }

    async fn replace(&self, path: &Path, content: ByteStream, limit: u64) -> Result<u64, FilesError> {
        let requested = path.to_owned();
        let (pending, file, path) = self.run(move |view| view.begin_replace(&requested)).await?;
        let count = copy(content, file, limit, &path).await?;
        self.run(move |_| pending.finish()).await?;
        Ok(count)
    }

    async fn send_archive(&self, path: &Path, cap: ArchiveLimit) -> Result<ByteStream, FilesError> {
        let requested = path.to_owned();
        // An error of the path itself is returned now, not in the stream.
        self.run(move |view| view.stat(&requested)).await?;
        let (mut sender, receiver) = byte_channel();
        let (view, user, path) = (self.view()?, self.user, path.to_owned());
        let start = move || {
            let switched = user.map_or(Ok(()), HostUser::switch_thread).at_path(&path);
            let packed = switched.and_then(|()| archive::pack(&view, &path, cap, &mut sender));
            sender.finish(packed.map_err(std::io::Error::other));
        };
        std::thread::Builder::new().name("viv-pack".to_owned()).spawn(start).at_path(Path::new(""))?;
        Ok(Box::new(receiver))
    }

    async fn take_archive(&self, path: &Path, from: ByteStream, cap: ArchiveLimit) -> Result<UnpackReport, FilesError> {
        let path = path.to_owned();
        let (sender, receiver) = byte_channel();
        let mut unpacking = std::pin::pin!(self.run(move |view| archive::unpack(view, &path, cap, receiver)));
        tokio::select! {
            biased;
            // A refusal is returned at once, even while the caller still sends.
            unpacked = &mut unpacking => unpacked,
            sent = sender.send_all(from) => {
                sent.map_err(FilesError::Content)?;
                unpacking.await
            }
        }
    }
}

/// Copies at most `limit` bytes.
async fn copy(mut from: ByteStream, to: std::fs::File, limit: u64, path: &Path) -> Result<u64, FilesError> {
    let mut to = tokio::fs::File::from_std(to);
    let (mut buffer, mut count) = (vec![0; 64 * 1024], 0_u64);
    loop {
        let read = from.read(&mut buffer).await.map_err(FilesError::Content)?;
        if read == 0 {
            break;
        }
        count += read as u64;
        if count > limit {
            let limit = format!("the limit is {limit} bytes");
            return Err(FilesError::TooLarge { path: path.to_owned(), limit });
        }
        to.write_all(&buffer[..read]).await.at_path(path)?;
    }
    to.flush().await.at_path(path)?;
    Ok(count)
}

impl WorkspaceFiles for FilesOnDisk {
    fn stat<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, FileStat> {
        let path = path.to_owned();
        Box::pin(self.run(move |view| view.stat(&path)))
    }

    fn list<'a>(&'a self, path: &'a Path, limit: usize) -> FilesFuture<'a, DirectoryListing> {
        let path = path.to_owned();
        Box::pin(self.run(move |view| view.list(&path, limit)))
    }

    fn read<'a>(&'a self, path: &'a Path, range: ByteRange) -> FilesFuture<'a, FileContent> {
        Box::pin(self.open(path, range))
    }

    fn write<'a>(&'a self, path: &'a Path, content: ByteStream, limit: u64) -> FilesFuture<'a, u64> {
        Box::pin(self.replace(path, content, limit))
    }

    fn make_directory<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, ()> {
        let path = path.to_owned();
        Box::pin(self.run(move |view| view.make_directory(&path)))
    }

    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, existing: OnExisting) -> FilesFuture<'a, ()> {
        let (from, to) = (from.to_owned(), to.to_owned());
        Box::pin(self.run(move |view| view.rename(&from, &to, existing)))
    }

    fn remove<'a>(&'a self, path: &'a Path, depth: RemovalDepth) -> FilesFuture<'a, ()> {
        let path = path.to_owned();
        Box::pin(self.run(move |view| view.remove(&path, depth)))
    }

    fn pack<'a>(&'a self, path: &'a Path, cap: ArchiveLimit) -> FilesFuture<'a, ByteStream> {
        Box::pin(self.send_archive(path, cap))
    }

    fn unpack<'a>(&'a self, path: &'a Path, archive: ByteStream, cap: ArchiveLimit) -> FilesFuture<'a, UnpackReport> {
        Box::pin(self.take_archive(path, archive, cap))
    }
}
