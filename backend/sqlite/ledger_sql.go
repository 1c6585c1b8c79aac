package sqlite

import "github.com/croft-dev/croft/internal/clerk"

// The statements of the ledger, each in a file of its own.
var (
	sqlWorkEffect          = statementText("work_effect")
	sqlWorkEffectUpdate    = statementText("work_effect_update")
	sqlWorkEffects         = statementText("work_effects")
	sqlWorkEmit            = statementText("work_emit")
	sqlWorkForget          = statementText("work_forget")
	sqlWorkForgetEffects   = statementText("work_forget_effects")
	sqlWorkForgetRefusals  = statementText("work_forget_refusals")
	sqlWorkGranted         = statementText("work_granted")
	sqlWorkInsert          = statementText("work_insert")
	sqlWorkItem            = statementText("work_item")
	sqlWorkLevel           = statementText("work_level")
	sqlWorkFew             = statementText("work_few")
	sqlWorkList            = clerk.Direct(statementText("work_list"))
	sqlWorkListFew         = clerk.Direct(statementText("work_list_few"))
	sqlWorkEffectsOrphaned = statementText("work_effects_orphaned")
	sqlWorkMark            = statementText("work_mark")
	sqlWorkMarkKeep        = statementText("work_mark_keep")
	sqlWorkOld             = statementText("work_old")
	sqlWorkReady           = statementText("work_ready")
	sqlWorkRefusals        = statementText("work_refusals")
	sqlWorkRefuse          = statementText("work_refuse")
	sqlWorkStats           = statementText("work_stats")
	sqlWorkTake            = statementText("work_take")
	sqlWorkUnique          = statementText("work_unique")
	sqlWorkUpdate          = statementText("work_update")
)
