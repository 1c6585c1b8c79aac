//go:build !croft_no_s3

package backends

import _ "github.com/croft-dev/croft/backend/s3"

func init() { has("s3") }
