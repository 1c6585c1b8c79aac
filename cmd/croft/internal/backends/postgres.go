//go:build !croft_no_postgres

package backends

import "github.com/croft-dev/croft/backend/postgres"

func init() { has("postgres") }

func init() { Schemas["postgres"] = postgres.Schema }
