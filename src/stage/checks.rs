//! What every check uses: a list of what is wrong, and the forms that names and addresses take. Pure.

use std::fmt::Display;
use std::time::Duration;

use serde_json::Value;

use super::Violation;
use crate::api::duration::DurationText;
use crate::api::schema;
use crate::api::v1alpha1::rules::{CelRule, DurationRule};

/// What was found wrong so far.
#[derive(Default)]
pub(super) struct Checks {
    pub(super) found: Vec<Violation>,
}

impl Checks {
    pub(super) fn refuse(&mut self, field: impl Into<String>, value: &Value, message: &str) {
        let field = field.into();
        self.found.push(Violation {
            value: schema::shown(&field, value),
            field,
            message: message.to_owned(),
        });
    }

    /// Refuses what breaks `rule`, which sits at `at`.
    pub(super) fn hold(&mut self, holds: bool, at: &str, value: impl Display, rule: CelRule) {
        if !holds {
            let value = Value::from(value.to_string());
            self.refuse(format!("{at}{}", rule.field), &value, rule.message);
        }
    }

    /// A duration within its bounds; `None` where it is malformed, which the schema reports.
    pub(super) fn duration(
        &mut self,
        field: &str,
        text: &DurationText,
        rule: DurationRule,
    ) -> Option<Duration> {
        let time = text.parse().ok()?;
        let bound = |text| DurationText::new(text).parse().unwrap_or_default();
        let holds = bound(rule.min) <= time && time <= bound(rule.max);
        self.hold(holds, field, text.as_str(), rule.rule);
        Some(time)
    }

    pub(super) fn time(
        &mut self,
        field: &str,
        text: &DurationText,
        rule: DurationRule,
    ) -> Duration {
        self.duration(field, text, rule).unwrap_or_default()
    }
}

/// A number within the schema's bounds, which fit; another has been refused and may stand as zero.
pub(super) fn count<T: TryFrom<i64> + Default>(number: impl Into<i64>) -> T {
    T::try_from(number.into()).unwrap_or_default()
}

/// Whether an address is `host:port`, as [`rules::ADDRESS`] spells it.
pub(super) fn is_address(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_v6 = |host: &str| {
        let digits = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':');
        !host.is_empty() && host.bytes().all(digits)
    };
    let host_holds = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(host) => is_v6(host),
        None => host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.bytes().all(plain),
    };
    let port_holds = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    host_holds && port_holds && port.parse::<u16>().is_ok()
}

/// Whether a path is as [`rules::HANDLER_PATH`] spells it.
pub(super) fn is_path(path: &str) -> bool {
    let visible = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    path.starts_with('/') && path.bytes().all(visible)
}

/// Whether a text may be the key of a label or annotation, as [`rules::METADATA_KEY`] says it.
pub(super) fn is_metadata_key(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(is_label);
    domain.is_none_or(is_domain) && name.len() <= 63 && schema::is_word(name)
}

/// Whether a text is a DNS label.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63
        && text.bytes().all(inner)
        && text.starts_with(is_edge)
        && text.ends_with(is_edge)
}
