// The golden files include it and use nothing of it.
