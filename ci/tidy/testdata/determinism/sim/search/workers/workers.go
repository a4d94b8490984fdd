package workers

func start() { go start() } // which processes may
