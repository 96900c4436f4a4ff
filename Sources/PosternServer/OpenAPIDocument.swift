/// The interface description served at `/openapi.yaml`; `make openapi` writes it from `openapi/openapi.yaml`.
enum OpenAPIDocument {
    static let text = ""
}
