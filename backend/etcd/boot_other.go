//go:build !linux && !darwin

package etcd

// bootName says that this system gives its boots no name.
func bootName() string { return "" }
