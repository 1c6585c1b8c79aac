// Package browser shows that the server's page works in a real browser: its
// test goes through an operator's morning in headless Chromium.
package browser
