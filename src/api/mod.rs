//! Every Kubernetes string.
