//go:build !croft_no_sqlite

package backends

import "github.com/croft-dev/croft/backend/sqlite"

func init() { has("sqlite") }

func init() { Schemas["sqlite"] = sqlite.Schema }
