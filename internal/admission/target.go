package admission

// ParseTarget reads the end of a rule's text form, [as RESOURCE] [for KEY].
// wrong is the first word that it does not understand, or "".
func ParseTarget(words []string) (resource, key, wrong string) {
	for len(words) >= 2 {
		switch {
		case words[0] == "as" && resource == "":
			resource = words[1]
		case words[0] == "for" && key == "":
			key = words[1]
		default:
			return "", "", words[0]
		}
		words = words[2:]
	}
	if len(words) > 0 {
		return "", "", words[0]
	}
	return resource, key, ""
}

// TargetText is the text form that ParseTarget reads, with a space before it.
func TargetText(resource, key string) (text string) {
	if resource != "" {
		text += " as " + resource
	}
	if key != "" {
		text += " for " + key
	}
	return text
}
