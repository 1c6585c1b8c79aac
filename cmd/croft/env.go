package main

// These variables are read by every command. "croft run" sets them for its
// child.
const (
	envStore    = "CROFT_STORE"
	envOwner    = "CROFT_OWNER"
	envKey      = "CROFT_KEY"
	envToken    = "CROFT_TOKEN"
	envLease    = "CROFT_LEASE"
	envStamp    = "CROFT_STAMP"
	envDeadline = "CROFT_DEADLINE"
)

// envRaise lists further places for --raise, separated by spaces.
const envRaise = "CROFT_RAISE"

// envWebhookSecret holds the secrets for --webhook.
const envWebhookSecret = "CROFT_WEBHOOK_SECRET"

// envEffects names the file to which the command of "croft work run" writes its
// effects.
const envEffects = "CROFT_EFFECTS"
