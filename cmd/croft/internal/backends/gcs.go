//go:build !croft_no_gcs

package backends

import _ "github.com/croft-dev/croft/backend/gcs"

func init() { has("gcs") }
