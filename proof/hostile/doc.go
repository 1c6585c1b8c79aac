// Package hostile attacks Croft as a neighbour can who shares its network, its
// folders or its database. It is made of tests, one file for each surface.
package hostile
