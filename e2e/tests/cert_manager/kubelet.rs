//! The kubelet's part: the files of a Secret volume change some time after the Secret.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinHandle;

use crate::cluster::{Data, SECRET, Source};

/// A kubelet needs up to two minutes. The lifetimes of the test are as much shorter.
const DELAY: Duration = Duration::from_secs(4);
const INTERVAL: Duration = Duration::from_millis(200);

/// A folder with the Secret's keys as files, all of which change at once.
pub struct SecretVolume {
    task: JoinHandle<Result<()>>,
}

impl SecretVolume {
    /// Writes the files for the first time.
    pub async fn mount(source: Source, folder: PathBuf) -> Result<Self> {
        let mut mounted = source.secret_data(SECRET).await?;
        write(&folder, &mounted, 0)?;

        let task = tokio::spawn(async move {
            for revision in 1_u32.. {
                mounted = change(&source, &mounted).await?;
                write(&folder, &mounted, revision)?;
                println!("the files have certificate {revision}");
            }
            Ok(())
        });
        Ok(Self { task })
    }

    /// Whether it follows the Secret.
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for SecretVolume {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The next content, late: API servers have its authority already, and the webhook still serves the old certificate.
async fn change(source: &Source, mounted: &Data) -> Result<Data> {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let data = source.secret_data(SECRET).await?;
        if data != *mounted && source.each_bundle_has(&data["ca.crt"]).await? {
            tokio::time::sleep(DELAY).await;
            return Ok(data);
        }
    }
}

/// The layout of a mounted Secret:
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.0/pkg/volume/util/atomic_writer.go>
fn write(folder: &Path, data: &Data, revision: u32) -> Result<()> {
    let content = format!("..{revision}");
    std::fs::create_dir_all(folder.join(&content))?;
    for (key, value) in data {
        std::fs::write(folder.join(&content).join(key), value)?;
    }

    let (link, new) = (folder.join("..data"), folder.join("..data_tmp"));
    symlink(&content, &new)?;
    std::fs::rename(&new, &link).context("the switch of ..data")?;
    if revision == 0 {
        for key in data.keys() {
            symlink(Path::new("..data").join(key), folder.join(key))?;
        }
    }
    Ok(())
}
