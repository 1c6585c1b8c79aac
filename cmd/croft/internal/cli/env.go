package cli

// These variables are read by every command. "croft run" sets them for its
// child.
const (
	EnvStore    = "CROFT_STORE"
	EnvOwner    = "CROFT_OWNER"
	EnvKey      = "CROFT_KEY"
	EnvToken    = "CROFT_TOKEN"
	EnvLease    = "CROFT_LEASE"
	EnvStamp    = "CROFT_STAMP"
	EnvDeadline = "CROFT_DEADLINE"
)

// EnvConfirm is "stderr" in a command whose output is data: the result of an
// item, or the content of a write. There croft confirms on standard error.
const EnvConfirm = "CROFT_CONFIRM"

// EnvConfig names the one configuration file to read, or none.
const EnvConfig = "CROFT_CONFIG"

// EnvRaise lists further places for --raise, separated by spaces.
const EnvRaise = "CROFT_RAISE"

// EnvGuards lists the guards of new work items by queue, as QUEUE=TARGET,
// separated by spaces.
const EnvGuards = "CROFT_GUARDS"

// EnvWebhookSecret holds the secrets for --webhook.
const EnvWebhookSecret = "CROFT_WEBHOOK_SECRET"

// EnvEffects names the file to which the command of "croft work run" writes its
// effects.
const EnvEffects = "CROFT_EFFECTS"

// EnvDone names the file to which the command of "croft work run
// --require-done" writes its token when its work is done.
const EnvDone = "CROFT_DONE"
