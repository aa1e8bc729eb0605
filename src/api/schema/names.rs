//! Field names that are not in the schema: which one was meant. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;

use super::SPEC;

/// Words in a field's name after which its value is not shown.
const SECRETS: [&str; 4] = ["password", "secret", "token", "credential"];

/// Whether what stands in `field` may be a secret.
pub(super) fn is_secret(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or_default().to_lowercase();
    SECRETS.iter().any(|word| name.contains(word))
}

/// What to say of `name`, which `schema` at `field` does not have.
pub(super) fn advice(schema: &JSONSchemaProps, field: &str, name: &str) -> String {
    let known = schema.properties.iter().flat_map(|known| known.keys());
    let known: Vec<&str> = known.map(String::as_str).collect();
    if let Some(meant) = nearest(known.iter().copied(), name) {
        return format!("there is no such field: did you mean `{meant}`?");
    }
    let elsewhere = paths(&SPEC, "spec", name);
    if let [meant] = elsewhere.as_slice() {
        return format!("there is no such field: did you mean `{meant}`?");
    }
    let known = known.join("`, `");
    format!("there is no such field: remove it; `{field}` has `{known}`")
}

/// The one of `known` that a hasty writer of `name` meant, if any is near.
pub(crate) fn nearest<'a>(known: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    let allowed = (wanted.chars().count() / 4).clamp(1, 3);
    known
        .map(|candidate| (distance(&candidate.to_lowercase(), &wanted), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Where in the schema a field of that name is.
fn paths(schema: &JSONSchemaProps, at: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (known, schema) in schema.properties.iter().flatten() {
        let path = format!("{at}.{known}");
        found.extend(paths(schema, &path, name));
        if known == name {
            found.push(path);
        }
    }
    found
}

/// Insertions, removals and exchanges of a character between two texts (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (index, a) in a.chars().enumerate() {
        let mut left = index + 1;
        let mut next = vec![left];
        for (b, above) in b.iter().zip(row.windows(2)) {
            let &[diagonal, above] = above else { continue };
            left = (diagonal + usize::from(a != *b))
                .min(above + 1)
                .min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("visibilityTimeout", "visibilityTimeout"), 0);
        assert_eq!(distance("visibiltyTimeout", "visibilityTimeout"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
    }

    #[test]
    fn only_near_names_are_suggested() {
        let known = ["stream", "consumerGroup", "startFrom"];
        let near = |name| nearest(known.into_iter(), name);
        assert_eq!(near("Stream"), Some("stream"));
        assert_eq!(near("startfrom"), Some("startFrom"));
        assert_eq!(near("consumergroups"), Some("consumerGroup"));
        assert_eq!(near("group"), None);
        assert_eq!(near("x"), None);
    }
}
