//! What breaks around the engine, and that nothing is lost, doubled or spun over because of it.

mod denied;
mod full;
mod group;
mod handler;
mod lost;
mod promoters;
mod session;
mod types;

use std::time::Duration;

/// Room for a busy machine; what a test waits for usually takes a second or two.
const SOON: Duration = Duration::from_secs(30);
