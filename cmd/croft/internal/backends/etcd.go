//go:build !croft_no_etcd

package backends

import _ "github.com/croft-dev/croft/backend/etcd"

func init() { has("etcd") }
