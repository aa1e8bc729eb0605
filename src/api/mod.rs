//! Every Kubernetes string.
//! STUB, to be replaced at the merge.

/// The CRD as YAML.
pub fn crd_yaml() -> String {
    String::new()
}
