package server

import (
	_ "embed"
	"net/http"

	"github.com/croft-dev/croft/internal/wire"
)

// openAPI describes the API to programs, as OpenAPI 3.1. A test holds it to the
// handlers.
//
//go:embed openapi.json
var openAPI []byte

// describe answers GET /v1/openapi.json, to everybody: it tells nothing of this
// server.
func describe(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", wire.JSON)
	_, _ = w.Write(openAPI) // the client may have gone
}
