"""Whether confidences can be believed: acceptance, reliability, temperatures."""
