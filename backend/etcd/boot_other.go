//go:build !linux && !darwin

package etcd

// bootName returns "": this system gives its boots no name.
func bootName() string { return "" }
