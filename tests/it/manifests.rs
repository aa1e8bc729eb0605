//! What users write and what we ship: the definition is fresh, the examples parse, and the schema's rules are those of the code.

use std::fs;
use std::path::Path;

use streamstage::{api, manifest};

mod rules;

/// `kubectl apply` keeps a copy of the object in an annotation, which may hold 262,144 bytes.
const MAX_DEFINITION_BYTES: usize = 200_000;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "the switch to rewrite belongs to this test alone"
)]
fn the_definition_that_is_checked_in_is_fresh() {
    let path = root().join("crds/streamstages.yaml");
    let fresh = api::crd_yaml().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &fresh).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == fresh,
        "crds/streamstages.yaml is stale: run `streamstage crd > crds/streamstages.yaml`"
    );
}

#[test]
fn the_definition_fits_where_kubectl_keeps_a_copy() {
    let size = api::crd_yaml().unwrap().len();
    println!("the definition has {size} bytes");
    assert!(size < MAX_DEFINITION_BYTES, "{size} bytes");
}

#[test]
fn an_object_nobody_looked_at_is_not_taken_for_settled() {
    let crd = serde_json::to_value(api::crd()).unwrap();
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/default";
    let observed = crd.pointer(status).unwrap().get("observedGeneration");
    assert_eq!(observed.and_then(serde_json::Value::as_i64), Some(-1));
}

#[test]
fn every_example_parses() {
    let mut count = 0;
    for entry in fs::read_dir(root().join("deploy/examples")).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            let text = fs::read_to_string(&path).unwrap();
            let stage = manifest::parse(&text);
            assert!(stage.is_ok(), "{}:\n{}", path.display(), stage.unwrap_err());
            count += 1;
        }
    }
    assert!(count >= 4, "only {count} examples");
}

#[test]
fn a_chain_hands_over_within_one_cluster_slot() {
    let read = |name: &str| {
        let text = fs::read_to_string(root().join("deploy/examples").join(name)).unwrap();
        manifest::parse(&text).unwrap()
    };
    let (first, second) = (read("chain-clean.yaml"), read("chain-embed.yaml"));
    assert_eq!(first.output.as_ref().unwrap().stream, second.source.stream);
    assert!(first.keys().retry.as_str().starts_with("{crawl}:"));
    assert!(second.keys().retry.as_str().starts_with("{crawl}:"));
}
