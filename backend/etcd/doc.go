// Package etcd keeps leases in etcd, and guards data in it.
package etcd
