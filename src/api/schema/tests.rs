use serde_json::json;

use super::*;

fn lines(spec: &Value) -> Vec<String> {
    check(spec).iter().map(ToString::to_string).collect()
}

/// Every schema below `schema`, with its path.
fn all<'a>(schema: &'a JSONSchemaProps, path: &str, into: &mut Vec<(String, &'a JSONSchemaProps)>) {
    into.push((path.to_owned(), schema));
    for (name, child) in schema.properties.iter().flatten() {
        all(child, &format!("{path}.{name}"), into);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        all(items, &format!("{path}[]"), into);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        all(values, &format!("{path}[*]"), into);
    }
}

fn every_schema() -> Vec<(String, &'static JSONSchemaProps)> {
    let mut found = Vec::new();
    all(&SPEC, "spec", &mut found);
    found
}

#[test]
fn every_list_text_number_and_map_is_bounded() {
    for (path, schema) in every_schema() {
        let bounded = match schema.type_.as_deref() {
            Some("string") => schema.max_length.is_some() || schema.enum_.is_some(),
            Some("array") => schema.max_items.is_some(),
            Some("integer") => schema.minimum.is_some() && schema.maximum.is_some(),
            Some("object") => {
                schema.additional_properties.is_none() || schema.max_properties.is_some()
            }
            Some("boolean") => true,
            _ => schema.x_kubernetes_int_or_string == Some(true),
        };
        assert!(bounded, "{path} has no bound");
    }
}

#[test]
fn the_schema_uses_only_what_is_checked_here() {
    for (path, schema) in every_schema() {
        assert!(
            schema
                .pattern
                .as_deref()
                .is_none_or(|p| is_duration(schema) || [QUANTITY, LABEL_VALUE].contains(&p)),
            "{path}: a pattern of its own"
        );
        assert!(
            schema.any_of.is_none() && schema.one_of.is_none(),
            "{path}: alternatives"
        );
        assert_eq!(schema.nullable, None, "{path}: nullable");
        let lists = schema.x_kubernetes_list_type.as_deref();
        assert!(
            matches!(lists, None | Some("set" | "atomic")),
            "{path}: list type"
        );
        assert!(
            schema
                .format
                .as_deref()
                .is_none_or(|f| f == "int32" || f == "int64"),
            "{path}"
        );
    }
}

#[test]
fn every_field_has_a_manual() {
    for (path, schema) in every_schema() {
        let is_field = !path.ends_with(']');
        assert!(
            !is_field || schema.description.is_some(),
            "{path} has no description"
        );
    }
}

#[test]
fn parents_default_to_nothing_and_leaves_carry_the_values() {
    for (path, schema) in every_schema() {
        if let (Some("object"), Some(JSON(default))) = (schema.type_.as_deref(), &schema.default) {
            assert_eq!(default, &json!({}), "{path}");
        }
    }
}

#[test]
fn shapes_and_bounds_are_named_with_their_field() {
    let spec = json!({
        "replicas": 1001,
        "suspend": "yes",
        "redis": {"addresses": [], "database": 1.5, "auth": {"password": "hunter2"}},
        "source": {"stream": "", "consumerGroup": 7, "groupCreation": "Sometimes"},
        "delivery": {"concurrency": "4", "handlerTimeout": 30},
        "idempotency": {"keyFields": ["a", "a"], "ledger": false},
        "visibilityTimeout": "30s",
        "handler": {"type": "HTTP", "http": []},
        "template": {"spec": {"whatever": 1}, "metadata": {"labels": {"a.b/c": 1}}},
    });
    let expected = [
        "spec.delivery.concurrency: 4: must be a whole number: write it without quotes",
        "spec.delivery.handlerTimeout: 30: must be a duration such as `30s`, `500ms` or `1h30m`: whole numbers, each with its unit (h, m, s or ms)",
        "spec.delivery.visibilityTimeout: absent: must be set: how long a worker may be silent before another takes over its entries; 2s to 24h, no default",
        "spec.handler.http: a list: must be a map of fields",
        "spec.idempotency.keyFields[1]: a: may not be listed twice: remove one of them",
        "spec.idempotency.ledger: false: must be `AtCommit` or `Off`: put it in quotes (\"Off\"), YAML reads it as false",
        "spec.redis.addresses: 0 items: must hold at least 1 of them",
        "spec.redis.auth.password: (not shown): there is no such field: remove it; `spec.redis.auth` has `passwordSecretRef`, `usernameSecretRef`",
        "spec.redis.auth.passwordSecretRef: absent: must be set: the password",
        "spec.redis.database: 1.5: must be a whole number",
        "spec.replicas: 1001: must be between 0 and 1000",
        "spec.source.consumerGroup: 7: must be a text: put it in quotes",
        "spec.source.groupCreation: Sometimes: must be `IfMissing` or `Never`",
        "spec.source.stream: \"\": may not be empty: the stream to read",
        "spec.suspend: yes: must be `true` or `false`",
        "spec.template.metadata.labels[a.b/c]: 1: must be a text: put it in quotes",
        "spec.visibilityTimeout: 30s: there is no such field: did you mean `spec.delivery.visibilityTimeout`?",
    ];
    assert_eq!(lines(&spec), expected);
}

#[test]
fn a_password_in_an_address_is_not_shown() {
    let text = Value::from("redis://me:hunter2@host:6379");
    assert_eq!(
        shown("spec.redis.addresses", &text),
        "(not shown)@host:6379"
    );
}
