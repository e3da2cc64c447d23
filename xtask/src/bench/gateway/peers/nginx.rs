//! nginx, tuned for a vendor behind it: keep-alive connections, no buffering, no log.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Service, free_address};

pub(super) fn start(folder: &Path, vendor: &str) -> Result<(Service, String)> {
    let address = free_address()?;
    let path = folder.join("nginx.conf");
    std::fs::write(&path, config(folder, &address, vendor)).context("cannot write nginx.conf")?;
    let mut command = Command::new("nginx");
    command.arg("-e").arg(folder.join("error.log")).arg("-p").arg(folder).arg("-c").arg(&path);
    Ok((Service::start_at(&mut command, &address)?, address))
}

fn config(folder: &Path, address: &str, vendor: &str) -> String {
    let folder = folder.display();
    format!(
        "daemon off;
user root;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 32m;
    client_body_buffer_size 1m;
    tcp_nodelay on;
    keepalive_timeout 600;
    keepalive_requests 100000000;
    upstream vendor {{ server {vendor}; keepalive 64; keepalive_requests 100000000; keepalive_timeout 600; }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://vendor;
            proxy_http_version 1.1;
            proxy_set_header connection \"\";
            proxy_buffering off;
        }}
    }}
}}
"
    )
}
